package main

import (
	"context"
	"flag"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/node/client"
)

const (
	// completionPatience is how long a cluster may take to name what it has: a shell
	// waits for it.
	completionPatience = 300 * time.Millisecond
	completionTables   = 200 // at most
)

func (a *app) completionCommand() *cli.Command {
	scripts := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
	cmd := &cli.Command{
		Name:  "completion",
		Usage: "print what a shell needs to complete command lines",
		Description: "Commands, flags, contexts, and the names of tables and nodes, which the cluster on the line is asked for: for 300 ms at\n" +
			"most, and in silence.",
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		cmd.Subcommands = append(cmd.Subcommands, &cli.Command{
			Name:        shell,
			Usage:       "the script for " + shell,
			Description: "To use it now:\n\n   " + completionUse(shell),
			Action: func(c *cli.Context) error {
				if _, err := argsOf(c); err != nil {
					return err
				}
				_, err := io.WriteString(a.stdout, scripts[shell])
				return err
			},
		})
	}
	return cmd
}

func completionUse(shell string) string {
	if shell == "fish" {
		return "tidal completion fish | source"
	}
	return "source <(tidal completion " + shell + ")"
}

const bashCompletion = `# bash completion for tidal: source <(tidal completion bash)
_tidal() {
  local IFS=$'\n'
  COMPREPLY=($("${COMP_WORDS[0]}" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _tidal tidal
`

const zshCompletion = `#compdef tidal
# zsh completion for tidal: source <(tidal completion zsh)
_tidal() {
  local -a lines
  lines=("${(@f)$("${words[1]}" __complete --describe -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -z "${lines[1]}" ]]; then
    _files
    return
  fi
  lines=("${(@)lines//:/\\:}")
  lines=("${(@)lines//$'\t'/:}")
  _describe tidal lines
}
if [[ "${funcstack[1]}" == _tidal ]]; then _tidal "$@"; else compdef _tidal tidal; fi
`

//nolint:dupword // fish's blocks end with the same word
const fishCompletion = `# fish completion for tidal: tidal completion fish | source
function __tidal_complete
  set -l words (commandline -opc)
  set -l current (commandline -ct)
  set -l found ($words[1] __complete --describe -- $words[2..] "$current" 2>/dev/null)
  if test (count $found) -gt 0
    printf '%s\n' $found
  else
    __fish_complete_path "$current"
  end
end
complete -c tidal -f -a '(__tidal_complete)'
`

// completeCommand prints what the last of the words may become. The scripts call it.
func (a *app) completeCommand() *cli.Command {
	return &cli.Command{
		Name:      "__complete",
		Hidden:    true,
		Usage:     "for the scripts of `tidal completion`",
		UsageText: "tidal __complete [--describe] -- WORDS...",
		Flags:     []cli.Flag{&cli.BoolFlag{Name: "describe", Usage: "say what each is, behind a tab"}},
		Action: func(c *cli.Context) error {
			var b strings.Builder
			for _, x := range a.completions(c.Context, c.App, c.Args().Slice()) {
				b.WriteString(x.word)
				if c.Bool("describe") && x.about != "" {
					b.WriteString("\t" + x.about)
				}
				b.WriteString("\n")
			}
			_, err := io.WriteString(a.stdout, b.String())
			return err
		},
	}
}

// candidate is what a word may become.
type candidate struct{ word, about string }

// unfinished is a command line whose last word is being typed.
type unfinished struct {
	commands []*cli.Command // that may follow
	command  *cli.Command   // nil: none yet
	path     []string
	flags    []string // with their values
	args     []string
	flag     string // the last word is the value of this flag; "": it is not
	dashes   bool   // flags are over
	last     string
	assigned string // what stands before last in its word, as --flag=
}

// completions returns what the last of the words may become.
func (a *app) completions(ctx context.Context, root *cli.App, words []string) []candidate {
	u := takeApart(root, words)
	var all []candidate
	switch {
	case u.flag != "":
		all = a.flagValues(ctx, u)
	case strings.HasPrefix(u.last, "-") && !u.dashes:
		all = u.flagNames()
	case len(u.commands) > 0 && len(u.args) == 0:
		for _, c := range u.commands {
			if !c.Hidden {
				all = append(all, candidate{c.Name, c.Usage})
			}
		}
	case u.command != nil:
		all = a.argument(ctx, u)
	}
	all = slices.DeleteFunc(all, func(x candidate) bool { return !strings.HasPrefix(x.word, u.last) })
	for i := range all {
		all[i].word = u.assigned + all[i].word
	}
	return all
}

// takeApart reads the words of an unfinished line.
func takeApart(root *cli.App, words []string) *unfinished {
	u := &unfinished{commands: root.Commands}
	if len(words) == 0 {
		return u
	}
	words, bash := joinAssigned(words)
	takesValue := flagArity(root.Commands)
	last := len(words) - 1
	for _, w := range words[:last] {
		switch {
		case u.flag != "":
			u.flags, u.flag = append(u.flags, w), ""
		case u.dashes || len(w) < 2 || w[0] != '-':
			u.word(w)
		case w == "--":
			u.dashes = true
		default:
			u.flags = append(u.flags, w)
			if name, _, assigned := strings.Cut(strings.TrimLeft(w, "-"), "="); takesValue[name] && !assigned {
				u.flag = name
			}
		}
	}
	u.last = words[last]
	if name, value, ok := strings.Cut(u.last, "="); ok && u.flag == "" && !u.dashes && strings.HasPrefix(name, "-") {
		u.flag, u.last = strings.TrimLeft(name, "-"), value
		if !bash { // which takes what stands behind the = for a word of its own
			u.assigned = name + "="
		}
	}
	return u
}

// word takes a word that is no flag.
func (u *unfinished) word(w string) {
	c := find(u.commands, w)
	if c == nil || u.dashes || len(u.args) > 0 {
		u.args = append(u.args, w)
		return
	}
	u.command, u.commands, u.path = c, c.Subcommands, append(u.path, c.Name)
}

// joinAssigned puts together what bash splits at a =, and reports whether it did so
// with the last word.
func joinAssigned(words []string) (out []string, lastOne bool) {
	for i := 0; i < len(words); i++ {
		n := len(out) - 1
		if words[i] != "=" || n < 0 || !strings.HasPrefix(out[n], "-") {
			out = append(out, words[i])
			continue
		}
		out[n] += "="
		if i+1 < len(words) {
			i++
			out[n] += words[i]
		}
		lastOne = i == len(words)-1
	}
	return out, lastOne
}

// flagNames are the flags of the command on the line.
func (u *unfinished) flagNames() []candidate {
	all := []candidate{{"--help", "show help"}}
	if u.command == nil {
		return all
	}
	for _, f := range u.command.Flags {
		about := ""
		if d, ok := f.(cli.DocGenerationFlag); ok {
			about = strings.ReplaceAll(d.GetUsage(), "`", "")
		}
		for _, n := range f.Names() {
			all = append(all, candidate{dashed(n), about})
		}
	}
	return all
}

// flagValues are the values that are known of the flag which is being typed.
func (a *app) flagValues(ctx context.Context, u *unfinished) []candidate {
	switch u.flag {
	case "cluster":
		return a.contextNames()
	case "node", "from", "to":
		if slices.Contains(u.path, "rows") { // there they are keys
			return nil
		}
		return a.nodeNames(ctx, u)
	case "output", "o":
		return []candidate{{formatTable, ""}, {formatJSON, ""}}
	case "consistency":
		return []candidate{{"linearizable", ""}, {"local", ""}}
	}
	return nil
}

// argument are the names that may stand where the last word does, by what the usage
// calls it.
func (a *app) argument(ctx context.Context, u *unfinished) []candidate {
	var names []string
	for w := range strings.FieldsSeq(u.command.UsageText) {
		if w = strings.Trim(w, "[]."); w == strings.ToUpper(w) && strings.ContainsAny(w, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
			names = append(names, w)
		} else if strings.HasPrefix(w, "-") {
			break // the names behind are those of values
		}
	}
	if len(u.args) >= len(names) {
		return nil
	}
	switch name := names[len(u.args)]; {
	case name == "NODE":
		return a.nodeNames(ctx, u)
	case name == "TABLE", name == "NAME" && u.path[0] == "tables" && u.command.Name != "create":
		return a.tableNames(ctx, u)
	}
	return nil
}

// contextNames are the clusters of the operator's file.
func (a *app) contextNames() (all []candidate) {
	path, err := a.contextsPath()
	if err != nil {
		return nil
	}
	file, err := readContexts(path)
	if err != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(file.Clusters)) {
		all = append(all, candidate{name, strings.Join(file.Clusters[name].Endpoints, " ")})
	}
	return all
}

func (a *app) nodeNames(ctx context.Context, u *unfinished) (all []candidate) {
	s, ok := a.glanceAt(ctx, u, api.TableQuery{})
	if !ok {
		return nil
	}
	for _, m := range s.Members {
		about := "no lease"
		if m.Lease != nil {
			about = m.Lease.Address
		}
		all = append(all, candidate{m.Node, about})
	}
	return all
}

func (a *app) tableNames(ctx context.Context, u *unfinished) (all []candidate) {
	q := api.TableQuery{Limit: completionTables}
	if u.last != "" {
		q.Filter = "/^" + regexp.QuoteMeta(u.last) + "/"
	}
	s, ok := a.glanceAt(ctx, u, q)
	if !ok {
		return nil
	}
	for _, t := range s.Tables {
		about := "no owner"
		if t.Owner != "" {
			about = "owned by " + t.Owner
		}
		all = append(all, candidate{t.Name, about})
	}
	return all
}

// glanceAt asks the cluster on the line, not for long. Whatever goes wrong, nobody is
// told.
func (a *app) glanceAt(ctx context.Context, u *unfinished, q api.TableQuery) (s api.Status, ok bool) {
	set := flag.NewFlagSet("", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	known := connectFlags()
	for _, f := range known {
		if err := f.Apply(set); err != nil {
			return s, false
		}
	}
	if err := set.Parse(ofFlags(u.flags, flagNames(known))); err != nil {
		return s, false
	}
	t, err := a.target(cli.NewContext(nil, set, nil))
	if err != nil {
		return s, false
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	cl, err := t.connectWith(client.Options{Timeout: completionPatience})
	if err != nil {
		return s, false
	}
	defer cl.Close()
	for _, e := range t.Endpoints {
		if s, err = cl.Window(ctx, e, q); err == nil {
			return s, true
		}
	}
	return s, false
}

// ofFlags returns those of the words that are flags of these names, with their values.
func ofFlags(words, names []string) (out []string) {
	for i := 0; i < len(words); i++ {
		name, _, assigned := strings.Cut(strings.TrimLeft(words[i], "-"), "=")
		if !strings.HasPrefix(words[i], "-") || !slices.Contains(names, name) {
			continue
		}
		if out = append(out, words[i]); !assigned && i+1 < len(words) {
			i++
			out = append(out, words[i])
		}
	}
	return out
}
