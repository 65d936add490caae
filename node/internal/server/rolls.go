package server

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"tidal/node/api"
)

// Rolls keeps the lock and the journal of rolls. Its errors are *api.Error.
type Rolls interface {
	// Rolls lists the last ones, the newest first, without plans, reports and nodes.
	Rolls(ctx context.Context) ([]api.Roll, error)
	// Roll returns one; 0 is the newest.
	Roll(ctx context.Context, id uint64) (api.Roll, error)
	// ChangeRoll returns what became of the roll: the whole of one that was started
	// or taken, else without plan, report and nodes.
	ChangeRoll(ctx context.Context, action api.RollAction, id uint64, c api.RollChange) (api.Roll, error)
}

// maxRollBody is the limit of the body of a change of a roll.
const maxRollBody = api.MaxRollPlan + 16<<10

func rollsRoute() *route {
	return newRoute("/v1/rolls",
		verb{http.MethodGet, needReader, (*exchange).listRolls},
		verb{http.MethodPost, needAdmin, (*exchange).startRoll},
	)
}

// rollRoutes returns the route of a roll, and those of what may be done with it.
func rollRoutes() (one *route, do map[string]*route) {
	do = map[string]*route{}
	for a, f := range map[api.RollAction]func(*exchange) error{
		api.RollTake: (*exchange).takeRoll, api.RollNote: (*exchange).noteRoll, api.RollEnd: (*exchange).endRoll,
		api.RollAsk: (*exchange).askRoll, api.RollUnlock: (*exchange).unlockRoll, api.RollRenew: (*exchange).renewRoll,
	} {
		do[a.String()] = newRoute("/v1/rolls/{roll}/"+a.String(), verb{http.MethodPost, needAdmin, f})
	}
	return get("/v1/rolls/{roll}", needReader, (*exchange).getRoll), do
}

// anyRoll returns the route of /v1/rolls/{roll} and /v1/rolls/{roll}/ACTION, nil if
// it is neither.
func (s *Server) anyRoll(x *exchange, path string) *route {
	rest, ok := strings.CutPrefix(path, "/v1/rolls/")
	if !ok {
		return nil
	}
	roll, action, more := strings.Cut(rest, "/")
	x.roll = roll
	if !more {
		return s.roll
	}
	return s.rollDo[action]
}

// listRolls answers GET /v1/rolls.
func (x *exchange) listRolls() error {
	if _, err := x.query(); err != nil {
		return err
	}
	ctx, cancel := x.patiently()
	defer cancel()
	rolls, err := x.s.o.Rolls.Rolls(ctx)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, api.RollList{Rolls: rolls})
}

// getRoll answers GET /v1/rolls/{roll}.
func (x *exchange) getRoll() error {
	if _, err := x.query(); err != nil {
		return err
	}
	id, err := x.rollID()
	if err != nil {
		return err
	}
	ctx, cancel := x.patiently()
	defer cancel()
	roll, err := x.s.o.Rolls.Roll(ctx, id)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, roll)
}

// rollID reads the path's number of a roll; "last" is 0.
func (x *exchange) rollID() (uint64, error) {
	if x.roll == "last" {
		return 0, nil
	}
	id, err := strconv.ParseUint(x.roll, 10, 64)
	if err != nil || id == 0 {
		return 0, badRequest("%q in the path is no number of a roll", clip(x.roll))
	}
	return id, nil
}

// startRoll answers POST /v1/rolls; the others POST /v1/rolls/{roll}/ACTION.
func (x *exchange) startRoll() error  { return x.changeRoll(api.RollStart, http.StatusCreated) }
func (x *exchange) takeRoll() error   { return x.changeRoll(api.RollTake, http.StatusOK) }
func (x *exchange) noteRoll() error   { return x.changeRoll(api.RollNote, http.StatusOK) }
func (x *exchange) endRoll() error    { return x.changeRoll(api.RollEnd, http.StatusOK) }
func (x *exchange) askRoll() error    { return x.changeRoll(api.RollAsk, http.StatusOK) }
func (x *exchange) unlockRoll() error { return x.changeRoll(api.RollUnlock, http.StatusOK) }
func (x *exchange) renewRoll() error  { return x.changeRoll(api.RollRenew, http.StatusOK) }

func (x *exchange) changeRoll(a api.RollAction, status int) error {
	if _, err := x.query(); err != nil {
		return err
	}
	var id uint64
	if a != api.RollStart {
		var err error
		if id, err = x.rollID(); err != nil {
			return err
		}
		if id == 0 {
			return badRequest("a roll is changed by its number, which GET /v1/rolls/last shows: another may be the last one by now")
		}
	}
	body, err := x.body(maxRollBody, "the change of the roll")
	if err != nil {
		return err
	}
	var c api.RollChange
	fields := `"epoch", "by", "force", "node", "state", "note", "status", "ask", "why" and "data"`
	if err = parseObject(body, &c, "the change of the roll", fields); err != nil {
		return err
	}
	if c.By == "" {
		c.By = x.who.Name
	}
	if err = c.Check(a); err != nil {
		return err
	}
	ctx, cancel := x.patiently()
	defer cancel()
	roll, err := x.s.o.Rolls.ChangeRoll(ctx, a, id, c)
	if err != nil {
		return x.late(ctx, err)
	}
	return x.json(status, roll)
}
