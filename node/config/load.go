package config

import (
	"errors"
	"fmt"
	"path/filepath"
)

// Sources are the places that values come from.
type Sources struct {
	File   string                           // path of tidal.toml, "" for none
	Env    func(name string) (string, bool) // nil for none
	Flag   func(name string) (string, bool) // by Key.Flag, nil for none
	Single bool                             // a cluster of this node alone
}

// Effective is a configuration and where each value of it came from.
type Effective struct {
	Config Config
	Origin map[string]string // Key.Name to the source, as "flag --node-id"
}

// Load reads the configuration from its sources; a flag wins over the
// environment, and that over the file. It says nothing about whether the values
// make sense; Validate does. Errors name the file and line, or the variable.
func Load(s Sources) (Effective, error) {
	e := Effective{Config: Default(), Origin: map[string]string{}}
	for _, k := range Keys() {
		e.Origin[k.Name] = "default"
	}
	if s.File != "" {
		if err := e.readFile(s.File); err != nil {
			return Effective{}, err
		}
	}
	var problems []error
	for _, k := range Keys() {
		problems = append(problems, e.override(k, s))
	}
	if err := errors.Join(problems...); err != nil {
		return Effective{}, err
	}
	if s.Single {
		if n := len(e.Config.Cluster.Members); n > 1 {
			return Effective{}, fmt.Errorf("--single makes a cluster of one node, and cluster.members lists %d (from %s)", n, e.Origin["cluster.members"])
		}
		e.single()
	}
	e.deriveAdvertise()
	return e, nil
}

// override takes the key's value from the environment or its flag.
func (e *Effective) override(k Key, s Sources) error {
	env := func(name string) (string, bool) {
		if s.Env == nil {
			return "", false
		}
		text, _ := s.Env(name)
		return text, text != "" // service files and containers often set what they mean to leave out
	}
	for _, from := range []struct {
		look         func(string) (string, bool)
		name, origin string
	}{{env, k.Env(), "environment " + k.Env()}, {s.Flag, k.Flag(), "flag --" + k.Flag()}} {
		if from.look == nil {
			continue
		}
		text, ok := from.look(from.name)
		if !ok {
			continue
		}
		if err := k.set(&e.Config, text); err != nil {
			return fmt.Errorf("%s: %w", from.origin, err)
		}
		if err := k.makeAbsolute(&e.Config, ""); err != nil {
			return fmt.Errorf("%s: %w", from.origin, err)
		}
		e.Origin[k.Name] = from.origin
	}
	return nil
}

// single makes the node a cluster of its own, for what nobody said otherwise.
func (e *Effective) single() {
	const origin = "flag --single"
	c := &e.Config
	if c.Node.ID == "" {
		c.Node.ID, e.Origin["node.id"] = "a", origin
	}
	if c.Cluster.Name == "" {
		c.Cluster.Name, e.Origin["cluster.name"] = "single", origin
	}
	if len(c.Cluster.Members) == 0 {
		address := c.Node.Advertise
		if address == "" {
			address = c.Scheme() + "://" + c.Node.Listen
		}
		c.Cluster.Members = map[string]string{c.Node.ID: address}
		e.Origin["cluster.members"] = origin
	}
}

// deriveAdvertise fills in what others know this node by.
func (e *Effective) deriveAdvertise() {
	c := &e.Config
	if address, ok := c.Cluster.Members[c.Node.ID]; ok && c.Node.Advertise == "" {
		c.Node.Advertise = address
		e.Origin["node.advertise"] = "cluster.members"
	}
}

// makeAbsolute resolves a path against the folder base, or against the current one.
func (k Key) makeAbsolute(c *Config, base string) error {
	if !k.path || *k.text(c) == "" {
		return nil
	}
	p := *k.text(c)
	if !filepath.IsAbs(p) {
		p = filepath.Join(base, p)
	}
	abs, err := filepath.Abs(p)
	if err != nil {
		return err
	}
	*k.text(c) = abs
	return nil
}
