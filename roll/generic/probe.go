package generic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"tidal/roll"
)

// pageMax is how much of a page is read.
const pageMax = 4 << 20

// Probe asks something of a node: a page, which must be answered with a 2xx, or a
// command, which must end with 0.
type Probe struct {
	url     string
	find    string // in the page or the output, a regular expression; "": anything
	command Template
}

// probeOf reads a probe from the configuration: a URL, a command, or a table with
// one of the two and what to find in its answer.
func probeOf(v any) (Probe, error) {
	table, ok := v.(map[string]any)
	if !ok {
		table = map[string]any{"command": v}
		if s, isText := v.(string); isText && (strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")) {
			table = map[string]any{"url": s}
		}
	}
	var p Probe
	for key, x := range table {
		var err error
		switch s, text := x.(string); {
		case key == "url" && text:
			p.url = s
		case key == "find" && text:
			p.find = s
		case key == "command":
			p.command, err = templateOf(x)
		default:
			err = fmt.Errorf("has the key %q = %v: want url or command, and find, which are texts", key, x)
		}
		if err != nil {
			return Probe{}, err
		}
	}
	if !p.empty() && (p.url == "") == p.command.empty() {
		return Probe{}, errors.New("needs a url or a command, and not both")
	}
	return p, nil
}

func (p Probe) empty() bool { return p.url == "" && p.command.empty() && p.find == "" }

func (p Probe) check(vars map[string]string) error {
	if at := unknownIn(p.url, vars); at != "" {
		return Template{words: []string{p.url}}.check(vars)
	}
	if p.url != "" {
		if u, err := url.Parse(fill(p.url, vars)); err != nil || u.Host == "" {
			return fmt.Errorf("is %q, which is no URL", fill(p.url, vars))
		}
	}
	if at := unknownIn(p.find, vars); at != "" {
		return Template{words: []string{p.find}}.check(vars)
	}
	if _, err := p.pattern(vars); err != nil {
		return err
	}
	return p.command.check(vars)
}

// pattern is what is to be found of one node.
func (p Probe) pattern(vars map[string]string) (*regexp.Regexp, error) {
	literal := map[string]string{}
	for name, v := range vars {
		literal[name] = regexp.QuoteMeta(v)
	}
	return regexp.Compile(fill(p.find, literal))
}

func (p Probe) verbatim(vars map[string]string) string {
	text := "GET " + fill(p.url, vars)
	if p.url == "" {
		text = p.command.verbatim(vars)
	}
	if p.find != "" {
		text += "  finds " + fill(p.find, vars)
	}
	return text
}

// ask asks, and returns what was found: the first group of what is to be found, all
// of that, or the whole answer.
func (p Probe) ask(ctx context.Context, client *http.Client, vars map[string]string, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var text string
	var err error
	if p.url != "" {
		text, err = page(ctx, client, fill(p.url, vars))
	} else {
		text, err = roll.Process{Argv: p.command.argv(vars), Limit: limit, Env: []string{"TIDAL_NODE=" + vars["node"]}}.Run(ctx)
		if failed, ok := errors.AsType[*roll.CommandError](err); ok {
			err = said(failed)
		}
	}
	if text = strings.TrimSpace(text); err != nil || p.find == "" {
		return text, err
	}
	pattern, err := p.pattern(vars)
	if err != nil {
		return "", err
	}
	found := pattern.FindStringSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%s is not in the answer: %.80s", pattern, stable(roll.LastLine(text)))
	}
	return found[min(1, len(found)-1)], nil
}

// noAnswerError is of a probe that was not answered, by yes or no.
type noAnswerError struct{ error }

func noAnswer(err error) bool {
	_, ok := errors.AsType[noAnswerError](err)
	return ok
}

// said is the answer of a command that did not end with 0. One that was ended says nothing.
func said(failed *roll.CommandError) error {
	err := errors.New(stable(failed.Exit()))
	if ended, ok := errors.AsType[*exec.ExitError](failed.Err); ok && ended.Exited() {
		return err
	}
	return noAnswerError{err}
}

// page gets a page. Errors name no ports of ours: they would be others each time. Where a
// page leads to another one, that may be another node's.
func page(ctx context.Context, from *http.Client, address string) (string, error) {
	client := *from
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := client.Do(req)
	if err != nil {
		if inner, ok := errors.AsType[*net.OpError](err); ok {
			err = fmt.Errorf("%s: %w", inner.Op, inner.Err)
		}
		if ctx.Err() != nil {
			err = errors.New("it did not answer in time")
		}
		return "", noAnswerError{fmt.Errorf("GET %s: %w", address, err)}
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, pageMax))
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return "", noAnswerError{fmt.Errorf("GET %s: its answer broke off", address)}
	}
	if to := res.Header.Get("Location"); res.StatusCode/100 == 3 && to != "" {
		return "", fmt.Errorf("GET %s: %s to %.120s, which is not followed: it may be another node's", address, res.Status, to)
	}
	if res.StatusCode/100 != 2 {
		return "", fmt.Errorf("GET %s: %s: %.120s", address, res.Status, stable(roll.LastLine(string(b))))
	}
	return string(b), nil
}

// stable takes times and ids out of a text, so that the same failure reads the same.
func stable(text string) string {
	text = regexp.MustCompile(`\d{4}-\d\d-\d\d([T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?)?|\d\d:\d\d:\d\d(\.\d+)?`).ReplaceAllString(text, "…")
	return regexp.MustCompile(`\b[0-9a-fA-F-]{8,}\b`).ReplaceAllStringFunc(text, func(word string) string {
		if strings.ContainsAny(word, "0123456789") && strings.Trim(word, "0123456789") != "" {
			return "…"
		}
		return word
	})
}
