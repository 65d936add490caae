package generic

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/client"
)

// rows is a cluster of tidal that is played: one row with its version.
type rows struct {
	mu      sync.Mutex
	value   []byte
	version uint64
	lose    bool // the answer of the next write, once it is done
	race    bool // somebody else writes before the next write does
}

func (s *rows) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tag := func() { w.Header().Set("ETag", `"1-`+strconv.FormatUint(s.version, 10)+`"`) }
	fail := func(status int, code api.Code) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"code":"`+string(code)+`","outcome":"none","message":"m"}`)
	}
	if r.Method == http.MethodGet {
		if s.version == 0 {
			fail(http.StatusNotFound, api.CodeRowNotFound)
			return
		}
		tag()
		_, _ = w.Write(s.value)
		return
	}
	if s.race {
		s.race = false
		s.version++
	}
	want := r.Header.Get("If-Match")
	if s.version == 0 && r.Header.Get("If-None-Match") != "*" || s.version > 0 && !strings.HasSuffix(want, "-"+strconv.FormatUint(s.version, 10)+`"`) {
		fail(http.StatusPreconditionFailed, api.CodePreconditionFailed)
		return
	}
	s.value, _ = io.ReadAll(r.Body)
	s.version++
	if s.lose {
		s.lose = false
		fail(http.StatusBadGateway, api.CodeOutcomeUnknown)
		return
	}
	tag()
	w.WriteHeader(http.StatusNoContent)
}

// written is how often it was written.
func (s *rows) written() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// TestRow: a journal in a row is changed by whoever saw the version that is there, a
// write whose answer was lost is found again, and a holder lives while it writes on.
func TestRow(t *testing.T) {
	t.Parallel()
	s := &rows{}
	srv := httptest.NewServer(s)
	defer srv.Close()
	open := func() *Row {
		cl, err := client.New(client.Options{Endpoints: []string{srv.URL}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return &Row{Client: cl, Table: "t", Key: "roll/db", looks: 10 * time.Millisecond, rests: 300 * time.Millisecond}
	}
	do := func(r *Row, a api.RollAction, c api.RollChange) (api.Roll, error) {
		return r.ChangeRoll(t.Context(), a, 0, c)
	}
	first, second := open(), open()
	s.lose = true
	r, err := do(first, api.RollStart, api.RollChange{By: "ann", Data: []byte(`{}`)})
	if err != nil || r.ID != 1 || r.Epoch != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	s.race = true
	if _, err = do(first, api.RollNote, api.RollChange{Epoch: 1, Node: "n1", State: "drain"}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var beats sync.WaitGroup
	beats.Go(func() {
		for ctx.Err() == nil {
			_, _ = first.ChangeRoll(ctx, api.RollRenew, 0, api.RollChange{Epoch: 1})
			<-time.After(50 * time.Millisecond)
		}
	})
	if _, err = do(second, api.RollTake, api.RollChange{Epoch: 1, By: "bob"}); api.CodeOf(err) != api.CodeRollLocked || !strings.Contains(err.Error(), "ann, who lives (the journal goes on)") {
		t.Errorf("from one that lives: %v", err)
	}
	silent := func(until func(ms int64) bool) {
		t.Helper()
		for begun := time.Now(); ; <-time.After(10 * time.Millisecond) {
			x, lookErr := second.Roll(t.Context(), 0)
			if lookErr != nil || x.Silent == nil || time.Since(begun) > 10*time.Second {
				t.Fatalf("%+v, %v", x, lookErr)
			}
			if until(*x.Silent) {
				return
			}
		}
	}
	if x, lookErr := second.Roll(t.Context(), 0); lookErr != nil || x.Silent != nil {
		t.Errorf("who looks for the first time knows nothing of silence: %+v, %v", x, lookErr)
	}
	before := s.written()
	silent(func(ms int64) bool { return s.written() > before+3 && ms < 40 })
	stop()
	beats.Wait()
	silent(func(ms int64) bool { return ms > 200 })
	if _, err = do(second, api.RollStart, api.RollChange{By: "bob"}); !strings.Contains(err.Error(), "its operator is gone (it was silent for 300ms)") {
		t.Errorf("another roll: %v", err)
	}
	if r, err = do(second, api.RollTake, api.RollChange{Epoch: 1, By: "bob"}); err != nil || r.Epoch != 2 || r.Nodes[0].State != "drain" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err = do(first, api.RollRenew, api.RollChange{Epoch: 1}); api.CodeOf(err) != api.CodeStaleEpoch {
		t.Errorf("the first one: %v", err)
	}
	if r, err = do(second, api.RollEnd, api.RollChange{Epoch: 2, Status: api.RollDone}); err != nil || r.Status != api.RollDone {
		t.Errorf("%+v, %v", r, err)
	}
	if list, err := first.Rolls(t.Context()); err != nil || len(list) != 1 || list[0].Status != api.RollDone || list[0].Nodes != nil {
		t.Errorf("%+v, %v", list, err)
	}
}
