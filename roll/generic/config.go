package generic

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"tidal/node/api"
	"tidal/roll"
)

// Settings are the keys of a generic cluster in the operator's file. Commands are
// lists of words, or texts for the shell; probes are URLs, commands, or tables of
// {url or command, find}.
type Settings struct {
	Kind        string                    `toml:"kind"`
	Nodes       map[string]map[string]any `toml:"nodes"`       // by id; the keys of one stand for {key} in its commands
	Quorum      int                       `toml:"quorum"`      // nodes that must be ready; 0: more than half
	Journal     string                    `toml:"journal"`     // a file, or tidal:CLUSTER/TABLE
	Ready       any                       `toml:"ready"`       // a probe
	Incarnation any                       `toml:"incarnation"` // a probe whose finding differs from run to run
	Version     any                       `toml:"version"`     // a probe that finds the version
	Leader      any                       `toml:"leader"`      // a probe that succeeds on the node that leads
	Drain       any                       `toml:"drain"`       // a command
	Drained     any                       `toml:"drained"`     // a probe that succeeds once the node is empty
	Undrain     any                       `toml:"undrain"`     // a command
	Restart     any                       `toml:"restart"`     // a command
	Limit       string                    `toml:"limit"`       // of a command
	ProbeLimit  string                    `toml:"probe_limit"` // of a probe
	Canary      *CanarySettings           `toml:"canary"`
}

// Keys returns the keys that are set, in the order in which they stand above, but for
// the kind.
func (s *Settings) Keys() []string {
	var out []string
	v := reflect.ValueOf(s).Elem()
	for field, value := range v.Fields() {
		if key := field.Tag.Get("toml"); key != "kind" && !value.IsZero() {
			out = append(out, key)
		}
	}
	return out
}

// CanarySettings are the keys of a canary.
type CanarySettings struct {
	Command any    `toml:"command"` // with {attempt}, which counts
	Every   string `toml:"every"`
	Limit   string `toml:"limit"`  // of one attempt
	Around  string `toml:"around"` // how long it looks before the first node and after the last
}

// The defaults.
const (
	defaultLimit       = 2 * time.Minute
	defaultProbeLimit  = 5 * time.Second
	defaultEvery       = 250 * time.Millisecond
	defaultCanaryLimit = 2 * time.Second
	defaultAround      = 3 * time.Second
)

// member is a node of the configuration.
type member struct {
	id   string
	zone string
	vars map[string]string
}

// Config is a generic cluster that can be rolled.
type Config struct {
	Name    string
	Journal string // "" is left to the caller

	id                                           string
	members                                      []member // by id
	quorum                                       int
	ready, incarnation, version, leader, drained Probe
	drain, undrain, restart                      Template
	limit, probeLimit                            time.Duration

	canary                           Template
	every, canaryLimit, canaryAround time.Duration
}

// problems collects what is wrong with settings.
type problems struct{ all []error }

func (p *problems) add(key string, err error) {
	switch {
	case err == nil:
	case key == "": // it names its key itself
		p.all = append(p.all, err)
	default:
		p.all = append(p.all, fmt.Errorf("%s %w", key, err))
	}
}

// Read makes a cluster of settings. The error names every problem.
func Read(name string, s *Settings) (*Config, error) {
	var p problems
	c := &Config{Name: name, Journal: s.Journal, quorum: s.Quorum, id: fingerprint(s)}
	p.members(c, s)
	if c.quorum == 0 {
		c.quorum = len(c.members)/2 + 1
	}
	if c.quorum < 1 || c.quorum > len(c.members) {
		p.add("quorum", fmt.Errorf("is %d, and there are %d nodes", c.quorum, len(c.members)))
	}
	for _, x := range []struct {
		key  string
		from any
		to   *Probe
		must bool
	}{
		{"ready", s.Ready, &c.ready, true},
		{"incarnation", s.Incarnation, &c.incarnation, true},
		{"version", s.Version, &c.version, false},
		{"leader", s.Leader, &c.leader, false},
		{"drained", s.Drained, &c.drained, false},
	} {
		var err error
		*x.to, err = probeOf(x.from)
		p.add(x.key, err)
		switch {
		case err != nil || !x.to.empty():
		case x.from != nil:
			p.add(x.key, errors.New("is empty: it needs a url or a command"))
		case x.must:
			p.add(x.key, errors.New("is missing: without it nothing can be said of a node"))
		}
		p.each(x.key, c, x.to.check)
	}
	for _, x := range []struct {
		key  string
		from any
		to   *Template
	}{{"drain", s.Drain, &c.drain}, {"undrain", s.Undrain, &c.undrain}, {"restart", s.Restart, &c.restart}} {
		var err error
		*x.to, err = templateOf(x.from)
		p.add(x.key, err)
		p.each(x.key, c, x.to.check)
	}
	if s.Restart == nil {
		p.add("restart", errors.New("is missing: it restarts a node"))
	}
	p.duration("limit", s.Limit, defaultLimit, &c.limit)
	p.duration("probe_limit", s.ProbeLimit, defaultProbeLimit, &c.probeLimit)
	p.canary(c, s.Canary)
	return c, errors.Join(p.all...)
}

// fingerprint names what is in the settings.
func fingerprint(s *Settings) string {
	b, err := json.Marshal(s)
	if err != nil {
		b = fmt.Append(nil, *s) // of TOML there is nothing that JSON does not take
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])[:16]
}

// members reads the nodes.
func (p *problems) members(c *Config, s *Settings) {
	if len(s.Nodes) == 0 {
		p.add("nodes", errors.New("are missing: list them as [clusters."+c.Name+".nodes.ID]"))
	}
	for _, id := range slices.Sorted(maps.Keys(s.Nodes)) {
		p.add("nodes."+id, api.CheckNode(id))
		m := member{id: id, vars: map[string]string{"node": id}}
		for key, v := range s.Nodes[id] {
			var text string
			switch v := v.(type) {
			case string:
				text = v
			case int64:
				text = strconv.FormatInt(v, 10)
			default:
				p.add("nodes."+id+"."+key, fmt.Errorf("is %v: want a text or a number", v))
				continue
			}
			if key == "node" || unknownIn("{"+key+"}", nil) == "" {
				p.add("nodes."+id+"."+key, errors.New("is no name for a placeholder: want small letters, digits and _, and not node"))
			}
			p.add("", roll.CheckWord("nodes."+id+"."+key, text))
			m.vars[key] = text
		}
		m.zone = m.vars["zone"]
		c.members = append(c.members, m)
	}
}

// each has a command or probe checked with the values of every node, until one is
// wrong.
func (p *problems) each(key string, c *Config, check func(map[string]string) error) {
	for i := range c.members {
		if err := check(c.members[i].vars); err != nil {
			p.add(key, fmt.Errorf("%w, for node %s", err, c.members[i].id))
			return
		}
	}
}

func (p *problems) duration(key, text string, byDefault time.Duration, to *time.Duration) {
	*to = byDefault
	if text == "" {
		return
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		p.add(key, fmt.Errorf("is %q: want a duration, as 30s", text))
		return
	}
	*to = d
}

func (p *problems) canary(c *Config, s *CanarySettings) {
	if s == nil {
		return
	}
	var err error
	c.canary, err = templateOf(s.Command)
	if err == nil && c.canary.empty() {
		err = errors.New("is missing")
	}
	p.add("canary.command", err)
	p.add("canary.command", c.canary.check(attempt(0)))
	p.duration("canary.every", s.Every, defaultEvery, &c.every)
	p.duration("canary.limit", s.Limit, defaultCanaryLimit, &c.canaryLimit)
	p.duration("canary.around", s.Around, defaultAround, &c.canaryAround)
}

func attempt(n uint64) map[string]string {
	return map[string]string{"attempt": strconv.FormatUint(n, 10)}
}

// HasVersion reports whether the version of a node can be known.
func (c *Config) HasVersion() bool { return !c.version.empty() }

// Describe writes into a plan what is run for each node, word for word, and as what,
// and the canary.
func (c *Config) Describe(p *roll.Plan) {
	p.Canary = c.asked()
	for _, id := range p.Rolled() {
		i := slices.IndexFunc(c.members, func(m member) bool { return m.id == id })
		if i < 0 {
			continue
		}
		vars := c.members[i].vars
		add := func(what, command string) {
			p.Commands = append(p.Commands, roll.PlannedCommand{Node: id, What: what, Command: command})
		}
		for _, x := range []struct {
			what string
			t    Template
		}{{"drain", c.drain}, {"restart", c.restart}, {"undrain", c.undrain}} {
			if !x.t.empty() {
				add(x.what, x.t.verbatim(vars))
			}
		}
		for _, x := range []struct {
			what string
			p    Probe
		}{{"drained", c.drained}, {"incarnation", c.incarnation}, {"ready", c.ready}, {"leader", c.leader}, {"version", c.version}} {
			if !x.p.empty() {
				add(x.what, x.p.verbatim(vars))
			}
		}
	}
}

// asked is the canary's command, "" if there is none.
func (c *Config) asked() string {
	if c.canary.empty() {
		return ""
	}
	return c.canary.verbatim(map[string]string{"attempt": "{attempt}"})
}
