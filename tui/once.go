package tui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"tidal/node/api"
)

// Report is what there is at one moment, for programs and for whoever has no
// terminal. Names are as they are.
type Report struct {
	Status   api.Status `json:"status"`
	Nodes    []NodeNow  `json:"nodes"` // every member, also those that do not answer
	Problems []string   `json:"problems"`
	Degraded bool       `json:"degraded"`

	picture Picture
	sort    string
}

// NodeNow is a member, and what it says of itself.
type NodeNow struct {
	Node      string           `json:"node"`
	State     string           `json:"state"` // serving, joining, draining, stale or down
	Why       string           `json:"why,omitempty"`
	Reachable bool             `json:"reachable"`
	Error     string           `json:"error,omitempty"` // why it does not answer
	Local     *api.LocalStatus `json:"local,omitempty"`
}

// CheckTables reports whether tables can be sorted and filtered so.
func CheckTables(sort, filter string) error {
	q := api.TableQuery{Sort: sort}
	_, _, err := q.SortKey()
	_, bad := api.ParseFilter(filter, tableFields())
	return errors.Join(err, bad)
}

// tableFields are what a filter of tables can name beside the name.
func tableFields() []string {
	return []string{"state", "owner", "place", "node", "term", "frontier", "lag", "writes", "p99", "replicas", "id"}
}

// Once asks the cluster one time, and each node at once.
func Once(ctx context.Context, src Source, o Options) (*Report, error) {
	q := api.TableQuery{Sort: o.Sort, Filter: o.Filter, Limit: api.MaxWindow}
	s, from, err := firstWindow(ctx, src, q)
	if err != nil {
		return nil, err
	}
	if s.MetaLeader != "" && s.MetaLeader != s.Node { // it knows more of the leases
		for _, m := range s.Members {
			if m.Node == s.MetaLeader && m.Lease != nil {
				call, cancel := context.WithTimeout(ctx, 2*askLimit)
				if better, err := src.Window(call, m.Lease.Address, q); err == nil {
					s, from = better, m.Lease.Address
				}
				cancel()
			}
		}
	}
	p := Picture{Now: time.Now(), At: time.Now(), Cluster: o.Cluster, Status: &s, From: from, Locals: askAll(ctx, src, &s)}
	p.Now, p.At = time.Now(), time.Now()
	th := theme{ascii: true}
	r := &Report{Status: s, picture: p, sort: cmp.Or(o.Sort, "name"), Problems: []string{}}
	problems := p.problems(&th)
	for _, x := range problems {
		r.Problems = append(r.Problems, x.text)
	}
	r.Degraded = degraded(problems)
	for _, x := range p.nodes(&th) {
		n := NodeNow{Node: x.member.Node, State: x.state, Why: x.why, Error: x.local.Err, Reachable: !x.local.At.IsZero()}
		if n.Reachable {
			n.Local = &x.local.Status
		}
		r.Nodes = append(r.Nodes, n)
	}
	return r, nil
}

// firstWindow asks one endpoint after the other.
func firstWindow(ctx context.Context, src Source, q api.TableQuery) (s api.Status, from string, err error) {
	for _, e := range src.Endpoints() {
		call, cancel := context.WithTimeout(ctx, 2*askLimit)
		var one error
		s, one = src.Window(call, e, q)
		cancel()
		if one == nil {
			return s, e, nil
		}
		err = errors.Join(err, one)
		if ctx.Err() != nil {
			return s, "", ctx.Err()
		}
	}
	return s, "", err
}

// askAll asks every member what it says of itself, side by side.
func askAll(ctx context.Context, src Source, s *api.Status) map[string]Local {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	out := make(map[string]Local, len(s.Members))
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range s.Members {
		m := &s.Members[i]
		address := m.Address
		if m.Lease != nil {
			address = m.Lease.Address
		}
		all.Go(func() {
			local, err := src.Brief(ctx, address)
			l := Local{Status: local, At: time.Now(), Rate: math.NaN(), Refused: math.NaN(), P99: math.NaN()}
			if err != nil {
				l.At, l.Err = time.Time{}, err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			out[m.Node] = l
		})
	}
	all.Wait()
	return out
}

// Write writes the report as text, in the columns of the screen.
func (r *Report) Write(w io.Writer) error {
	th := theme{ascii: true}
	m := newModel(Options{Cluster: r.picture.Cluster}, th, nil)
	m.p = r.picture
	var b strings.Builder
	s := &r.Status
	ready, all := m.ready()
	fmt.Fprintf(&b, "cluster %s (%s) as node %s sees it: %d of %d nodes serve; metadata led by %s in term %d\n",
		clean(s.Cluster), s.ClusterID, clean(s.Node), ready, all, orNone(clean(s.MetaLeader)), s.MetaTerm)
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "! %s\n", p)
	}
	var rows [][]cell
	for _, n := range m.nodeRows() {
		rows = append(rows, nodeCells(&n))
	}
	b.WriteByte('\n')
	writeColumns(&b, nodeColumns(), rows, "requests", "p99")
	rows = nil
	for i := range s.Tables {
		rows = append(rows, m.tableCells(&s.Tables[i]))
	}
	b.WriteByte('\n')
	writeColumns(&b, tableColumns(), rows)
	if win := s.Window; win != nil && win.Matched > len(s.Tables) {
		fmt.Fprintf(&b, "and %d more tables; --filter chooses among them\n", win.Matched-len(s.Tables))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeColumns writes all columns but those that need time to say anything, some named
// ones and the charts, each as wide as it must be.
func writeColumns(b *strings.Builder, cols []column, rows [][]cell, slow ...string) {
	var kept, widths []int
	for i, c := range cols {
		if c.id == "" || slices.Contains(slow, c.id) {
			continue
		}
		w := width(c.title)
		for _, r := range rows {
			w = max(w, width(r[i].text))
		}
		kept, widths = append(kept, i), append(widths, w)
	}
	put := func(text func(i int) string) {
		var l strings.Builder
		for n, i := range kept {
			l.WriteString(fit(text(i), widths[n], cols[i].right, ""))
			l.WriteString("  ")
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	put(func(i int) string { return cols[i].title })
	for _, r := range rows {
		put(func(i int) string { return r[i].text })
	}
}
