package cluster

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// hostlog notes what a host is told.
type hostlog struct{ words []string }

// Alive implements mourner.
func (t *hostlog) Alive(node string, start uint64) {
	t.words = append(t.words, fmt.Sprintf("%s.%d lives", node, start))
}

// Dead implements mourner.
func (t *hostlog) Dead(node string) { t.words = append(t.words, node+" is dead") }

// patient is a node that watches b.
type patient struct {
	*testing.T
	pulses
	hostlog
	now time.Time
	at  time.Time // when b was last heard
	inc api.Incarnation
}

func watching(t *testing.T) *patient {
	t.Helper()
	p := &patient{T: t, now: time.Unix(1000, 0)}
	p.suspect, p.stall, p.host = suspectAfter, stallAfter, &p.hostlog
	p.mu.of = map[string]*pulse{}
	p.inc = inc("b", 4)
	p.hello(p.inc)
	p.hears()
	return p
}

func (p *patient) hears() { p.at = p.now }

// looks looks so many times, each so long after the last.
func (p *patient) looks(times int, every time.Duration) {
	for range times {
		p.now = p.now.Add(every)
		p.look(p.now, every, suspectAfter/looks, func(string) (api.Incarnation, time.Time) { return p.inc, p.at })
	}
}

func (p *patient) beats(age time.Duration, hears ...string) {
	p.hears()
	p.beat(p.inc, &wire.Heartbeat{Age: age, Hears: hears})
}

// is holds what the host was told since the last call.
func (p *patient) is(want ...string) {
	p.Helper()
	if !slices.Equal(p.words, want) {
		p.Errorf("the host was told %q, want %q", p.words, want)
	}
	p.words = nil
}

func TestSilenceIsADeath(t *testing.T) {
	p := watching(t)
	p.is("b.4 lives")
	p.looks(5, 50*time.Millisecond)
	p.hears() // any byte will do
	p.looks(5, 50*time.Millisecond)
	p.is()
	p.looks(1, 50*time.Millisecond)
	p.is("b is dead")
	p.looks(20, 50*time.Millisecond)
	p.is()
	p.hears()
	p.looks(1, 50*time.Millisecond)
	p.is("b.4 lives")
}

// TestLooksAreFewWhileAllAreHeard: and none comes later than a death, which is counted
// from the last word.
func TestLooksAreFewWhileAllAreHeard(t *testing.T) {
	p := watching(t)
	p.is("b.4 lives")
	step := suspectAfter / looks
	look := func(due time.Duration) {
		t.Helper()
		if got := p.next(); got != due {
			t.Errorf("%v after the last word: the next look is due in %v, want %v", p.now.Sub(p.at), got, due)
		}
		p.now = p.now.Add(due)
		p.look(p.now, due, due, func(string) (api.Incarnation, time.Time) { return p.inc, p.at })
	}
	look(2 * step)
	look(2 * step)
	p.at = p.now.Add(step)
	look(2 * step)
	if got := p.mu.of["b"].silent; got != step {
		t.Errorf("silent for %v, %v after the last word", got, step)
	}
	look(2 * step)
	look(2 * step)
	p.is()
	look(step)
	p.is("b is dead")
	look(2 * step)
}

// TestLateLooksCountAgainstNobody: a node that stands still, or gets no processor,
// does not take the others for dead.
func TestLateLooksCountAgainstNobody(t *testing.T) {
	p := watching(t)
	p.is("b.4 lives")
	p.looks(10, 20*time.Second)
	p.looks(100, 80*time.Millisecond)
	p.looks(5, 50*time.Millisecond)
	p.is()
	p.looks(1, 50*time.Millisecond)
	p.is("b is dead")
}

// TestStallIsADeath: heartbeats of a node whose loop stands still do not keep it alive.
func TestStallIsADeath(t *testing.T) {
	p := watching(t)
	p.is("b.4 lives")
	for _, age := range []time.Duration{0, 100 * time.Millisecond, 999 * time.Millisecond} {
		p.beats(age)
		p.looks(1, 50*time.Millisecond)
	}
	p.is()
	p.beats(time.Second)
	p.is("b is dead")
	p.hello(p.inc) // it can still shake hands
	p.beats(1100 * time.Millisecond)
	p.looks(1, 50*time.Millisecond)
	p.is()
	p.beats(20 * time.Millisecond)
	p.is("b.4 lives")
}

// TestRefusalIsADeath: what was still on its way from a process that is gone is no
// sign of life. Only a hello is.
func TestRefusalIsADeath(t *testing.T) {
	p := watching(t)
	p.is("b.4 lives")
	p.refuse(inc("b", 3)) // of a life that is over
	p.refuse(inc("c", 1)) // of nobody
	p.is()
	p.refuse(p.inc)
	p.is("b is dead")
	p.beats(0)
	p.looks(1, 50*time.Millisecond)
	p.is()
	p.hello(p.inc) // a firewall was in the way
	p.is("b.4 lives")
}

// TestHelloOfAnotherLife: a later start takes the place of the one before, whose
// waiters wait no longer; an earlier one is not heard.
func TestHelloOfAnotherLife(t *testing.T) {
	p := watching(t)
	was := p.lifeOf("b")
	p.hello(inc("b", 3))
	p.is("b.4 lives")
	p.hello(inc("b", 5))
	p.is("b.5 lives")
	if !errors.Is(was.over(), errReborn) {
		t.Errorf("the former life: %v", was.over())
	}
	p.beats(5 * time.Second) // of the former life
	p.is()
	p.replaced("b")
	if p.lifeOf("b") != nil {
		t.Error("a node with a new disk has its old life still")
	}
	p.hello(inc("b", 1))
	p.is("b.1 lives")
}

func TestHearer(t *testing.T) {
	p := watching(t)
	p.hello(inc("c", 1))
	p.beats(0, "a", "c")
	if got := p.hearer("c"); got != "b" {
		t.Errorf("%q hears c, want b", got)
	}
	if got := p.living(); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("%q live", got)
	}
	p.refuse(p.inc)
	if got := p.hearer("c"); got != "" {
		t.Errorf("%q hears c, and is dead", got)
	}
}

// TestDetour: the way round to a node that is not heard here leads over one that hears
// it, and the one to any such node too.
func TestDetour(t *testing.T) {
	w := newWorld(t)
	c := still(w.state.View())
	c.o.Node = "a"
	p := &c.pulses
	p.suspect, p.stall, p.host = suspectAfter, stallAfter, &hostlog{}
	p.mu.of = map[string]*pulse{}
	p.hello(inc("b", 1))
	p.hello(inc("c", 1))
	p.beat(inc("b", 1), &wire.Heartbeat{Hears: []string{"a", "c"}})
	ways := func(when, want string) {
		t.Helper()
		if to, over := c.Detour("c"), c.Detour(""); to != want || over != want {
			t.Errorf("%s: to c over %q, to any over %q, want %q", when, to, over, want)
		}
	}
	ways("all are heard", "")
	p.refuse(inc("c", 1))
	ways("c is not", "b")
	p.beat(inc("b", 1), &wire.Heartbeat{Hears: []string{"a"}})
	ways("nobody hears c", "")
}
