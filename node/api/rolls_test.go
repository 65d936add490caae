package api_test

import (
	"strings"
	"testing"

	"tidal/node/api"
)

// TestRollChangeCheck: an action takes its own fields only, none of them longer than
// the journal can hold.
func TestRollChangeCheck(t *testing.T) {
	long := strings.Repeat("x", api.MaxRollText+1)
	data := []byte(`"` + strings.Repeat("x", api.MaxRollData) + `"`)
	plan := []byte(`"` + strings.Repeat("x", api.MaxRollPlan) + `"`)
	whole := map[api.RollAction]api.RollChange{
		api.RollStart:  {By: "ann", Data: data},
		api.RollTake:   {By: "ann", Epoch: 1, Force: true},
		api.RollNote:   {By: "ann", Epoch: 1, Node: "a", State: "drain", Note: "so", Data: []byte(`{}`)},
		api.RollEnd:    {By: "ann", Epoch: 1, Status: api.RollPaused, Why: "so", Data: data},
		api.RollAsk:    {By: "ann", Epoch: 1, Ask: api.RollAskPause},
		api.RollUnlock: {By: "ann", Why: "so"},
		api.RollRenew:  {By: "ann", Epoch: 1},
	}
	for a, change := range whole {
		if err := change.Check(a); err != nil {
			t.Errorf("%s: %v", a, err)
		}
		for _, f := range []struct {
			name  string
			takes string // the actions
			set   func(c *api.RollChange)
			over  api.Code // of an action that takes the field
		}{
			{"by", "start take note end ask unlock renew", func(c *api.RollChange) { c.By = long }, api.CodeTooLarge},
			{"node", "note", func(c *api.RollChange) { c.Node = strings.Repeat("n", api.MaxNode+1) }, api.CodeBadRequest},
			{"state", "note", func(c *api.RollChange) { c.State = long }, api.CodeTooLarge},
			{"note", "note", func(c *api.RollChange) { c.Note = long }, api.CodeTooLarge},
			{"status", "end", func(c *api.RollChange) { c.Status = api.RollStatus(long + long) }, api.CodeBadRequest},
			{"ask", "ask", func(c *api.RollChange) { c.Ask = long + long }, api.CodeBadRequest},
			{"why", "end unlock", func(c *api.RollChange) { c.Why = long }, api.CodeTooLarge},
			{"data", "start note end", func(c *api.RollChange) { c.Data = plan }, api.CodeTooLarge},
		} {
			c, want, word := change, api.CodeBadRequest, "takes no \""+f.name+"\""
			if strings.Contains(f.takes, a.String()) {
				want, word = f.over, ""
			}
			f.set(&c)
			if err := c.Check(a); api.CodeOf(err) != want || !strings.Contains(err.Error(), word) {
				t.Errorf("%s with a too long %s: %v, want %q", a, f.name, err, want)
			}
		}
	}
	c := api.RollChange{By: "ann", Force: true}
	if err := c.Check(api.RollStart); api.CodeOf(err) != api.CodeBadRequest {
		t.Errorf("start with force: %v", err)
	}
}
