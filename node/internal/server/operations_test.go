package server_test

import (
	"maps"
	"net/http"
	"slices"

	"tidal/node/api"
)

// operation is what docs/openapi.json says of a method and path beyond what is the
// same for all.
type operation struct {
	does    string
	takes   []string // parameters by name, see parameters
	body    any      // of the request: a value of its type; nil: none
	empty   bool     // the body may be missing
	answers map[int]answer
	codes   []api.Code
}

// answer is a status that is no error.
type answer struct {
	does string
	body any      // a value of its type, or the media type of something else; nil: none
	has  []string // headers, see headerTexts
}

// raw is a body of bytes, by its media type.
type raw string

// ok is the answer of most routes.
func ok(does string, body any, has ...string) map[int]answer {
	return map[int]answer{http.StatusOK: {does, body, has}}
}

// done is an answer without a body.
func done(does string, has ...string) map[int]answer {
	return map[int]answer{http.StatusNoContent: {does, nil, has}}
}

// routing are the codes of all that waits for a table's owner.
func routing(more ...api.Code) []api.Code {
	return append(more, api.CodeTableNotFound, api.CodeTooMany, api.CodeStaleOwner, api.CodeNoOwner, api.CodeOwnerUnreachable,
		api.CodeOutcomeUnknown, api.CodeNotReady)
}

// writing are those of writes.
func writing(more ...api.Code) []api.Code {
	return routing(append(more, api.CodeBehind, api.CodeIDReused, api.CodeDiskFull, api.CodeTooLarge)...)
}

// metadata are those of what the leader of the metadata has to do.
func metadata(more ...api.Code) []api.Code {
	return append(more, api.CodeNotReady, api.CodeOutcomeUnknown, api.CodeWrongDisk, api.CodeTooMany)
}

// operations says of each route what it does.
func operations() map[string]operation {
	ops := map[string]operation{}
	maps.Copy(ops, rowOperations())
	maps.Copy(ops, tableOperations())
	maps.Copy(ops, stateOperations())
	maps.Copy(ops, nodeOperations())
	maps.Copy(ops, rollOperations())
	return ops
}

func rowOperations() map[string]operation {
	const one, many = "/v1/tables/{table}/rows/{key}", "/v1/tables/{table}/rows"
	read := []string{"table", "key", "consistency", api.HeaderTimeout, "If-None-Match"}
	write := []string{"table", "key", api.HeaderTimeout, "If-Match", "If-None-Match (write)", api.HeaderIdempotency, api.HeaderPosition}
	shown := []string{"ETag", api.HeaderOwner, api.HeaderLag, api.HeaderPosition}
	same := answer{"the row still has that version", nil, shown}
	return map[string]operation{
		"GET " + one: {does: "Reads a row.", takes: read, codes: routing(api.CodeRowNotFound), answers: map[int]answer{
			200: {"the value, byte for byte", raw("application/octet-stream"), shown}, 304: same,
		}},
		"HEAD " + one: {does: "Reads a row without its value.", takes: read, codes: routing(api.CodeRowNotFound), answers: map[int]answer{
			200: {"there is such a row", nil, shown}, 304: same,
		}},
		"PUT " + one: {
			does: "Writes a row: the body is its value.", takes: write, body: raw("application/octet-stream"), empty: true,
			answers: done("the row is on the disks of a quorum", "ETag", api.HeaderOwner, api.HeaderPosition), codes: writing(api.CodePreconditionFailed),
		},
		"DELETE " + one: {
			does: "Deletes a row; one that is not there is fine.", takes: write,
			answers: done("there is no such row", "ETag", api.HeaderOwner, api.HeaderPosition), codes: writing(api.CodePreconditionFailed),
		},
		"GET " + many: {
			does: "Reads rows in the order of their keys, a page at a time.", codes: routing(),
			takes:   []string{"table", "prefix", "from", "to", "after", "limit (rows)", "consistency", api.HeaderTimeout, "Accept"},
			answers: ok("a page, and where the next one is; with Accept: application/x-ndjson a row on each line", api.Page{}, "Link", api.HeaderOwner, api.HeaderLag, api.HeaderPosition),
		},
		"POST " + many: {
			does: "Writes rows, all or none: a change on each line of the body.", codes: writing(),
			takes:   []string{"table", api.HeaderTimeout, api.HeaderIdempotency, api.HeaderPosition},
			body:    raw("application/x-ndjson"),
			answers: ok("the batch is on the disks of a quorum", api.BatchAnswer{}, api.HeaderOwner, api.HeaderPosition),
		},
	}
}

func tableOperations() map[string]operation {
	const one = "/v1/tables/{table}"
	return map[string]operation{
		"GET /v1/tables": {does: "Lists the tables.", answers: ok("the tables", api.TableList{})},
		"GET " + one: {
			does: "Describes a table.", takes: []string{"table", api.HeaderTimeout},
			answers: ok("the table", api.Table{}), codes: []api.Code{api.CodeTableNotFound, api.CodeNotReady},
		},
		"PUT " + one: {
			does: "Creates a table.", takes: []string{"table", api.HeaderTimeout}, body: api.TableSettings{}, empty: true,
			answers: map[int]answer{200: {"it is there with these settings", api.Table{}, nil}, 201: {"it was created", api.Table{}, []string{"Location"}}},
			codes:   metadata(api.CodeTableExists, api.CodeNotEnoughNodes, api.CodeConflict, api.CodeTooLarge),
		},
		"DELETE " + one: {
			does: "Drops a table with all of its rows.", takes: []string{"table", api.HeaderTimeout},
			answers: done("the table is gone"), codes: metadata(api.CodeTableNotFound, api.CodeConflict),
		},
		"POST " + one + "/replicas": {
			does: "Moves a replica from one node to another.", takes: []string{"table", api.HeaderTimeout}, body: api.Move{},
			answers: map[int]answer{202: {"the move is decided", api.Table{}, nil}},
			codes:   metadata(api.CodeTableNotFound, api.CodeNodeNotFound, api.CodeConflict, api.CodeNotEnoughNodes, api.CodeTooLarge),
		},
		"PUT " + one + "/owner": {
			does: "Has another node own the table.", takes: []string{"table", api.HeaderTimeout}, body: api.HandOver{}, answers: ok("it is owned by that node", api.Table{}),
			codes: routing(api.CodeNodeNotFound, api.CodeConflict, api.CodePreconditionFailed, api.CodeTooLarge),
		},
		"POST " + one + "/check": {
			does: "Compares the replicas of a table.", takes: []string{"table", api.HeaderTimeout}, answers: ok("how they compare", api.TableCheck{}),
			codes: routing(api.CodeConflict),
		},
	}
}

func stateOperations() map[string]operation {
	health := func(does string) operation {
		return operation{does: does, answers: map[int]answer{200: {"yes", api.Health{}, nil}, 503: {"no, and why", api.Health{}, nil}}}
	}
	return map[string]operation{
		"GET /health":         health("Whether traffic may be sent here."),
		"GET /readyz":         health("The same as /health."),
		"GET /health/startup": health("Whether the node has started."),
		"GET /health/live":    health("Whether the node's loops turn."),
		"GET /livez":          health("The same as /health/live."),
		"GET /cluster/status": {
			does:  "Shows the cluster as this node sees it; with a query a window of its tables.",
			takes: []string{"sort", "filter", "offset", "limit (tables)", "follow (table)", "consistency (status)", api.HeaderTimeout}, answers: ok("the cluster", api.Status{}),
			codes: []api.Code{api.CodeNotReady, api.CodeNoOwner, api.CodeWrongDisk},
		},
		"POST /v1/cluster/init": {
			does: "Forms a cluster without some of the listed members.", takes: []string{api.HeaderTimeout}, body: api.Founding{},
			answers: ok("it is proposed, or formed", api.Founded{}), codes: metadata(api.CodeConflict, api.CodeTooLarge),
		},
		"GET /v1/cluster/level": {
			does: "Says which feature level the cluster has, and which ones its members speak.", takes: []string{api.HeaderTimeout},
			answers: ok("the levels", api.ClusterLevel{}), codes: metadata(),
		},
		"PUT /v1/cluster/level": {
			does: "Raises the feature level for ever.", takes: []string{api.HeaderTimeout}, body: api.LevelChange{}, empty: true,
			answers: ok("it is raised", api.ClusterLevel{}), codes: metadata(api.CodeConflict, api.CodeTooLarge),
		},
		"GET /cluster/status/local": {does: "Shows this node alone.", takes: []string{"tables"}, answers: ok("the node", api.LocalStatus{})},
		"GET /cluster/events": {
			does: "Tells what happens, an event on each line, without end.", takes: []string{"after (event)", "follow"},
			answers: ok("events, each an Event in JSON", raw("application/x-ndjson")), codes: []api.Code{api.CodeTooMany},
		},
		"GET /metrics": {does: "The metrics of the node.", answers: ok("Prometheus or OpenMetrics text", raw("text/plain"), "Vary")},
		"GET /v1/stream": {
			does:    "Turns the connection into a stream of frames with requests for rows.",
			answers: map[int]answer{101: {"the connection is a stream from now on", nil, nil}}, codes: []api.Code{api.CodeNotReady},
		},
		"GET /internal/peer":     {does: "Where nodes meet each other; not for clients.", answers: map[int]answer{101: {"the connection is theirs", nil, nil}, 426: {"it is for nodes", raw("text/plain"), []string{"Upgrade", "X-Content-Type-Options"}}}},
		"GET /v1/certs/revoked":  {does: "Lists the certificates that the cluster refuses.", answers: ok("them", api.RevocationList{})},
		"POST /v1/certs/revoked": {does: "Has a certificate refused for ever.", takes: []string{api.HeaderTimeout}, body: api.Revocation{}, answers: done("it is refused"), codes: metadata(api.CodeConflict, api.CodeTooLarge)},
		"GET /v1/certs/rotation": {does: "Says how far a rotation of the authority is.", answers: ok("the rotation", api.Rotation{})},
		"PUT /v1/certs/rotation": {does: "Takes a rotation to its next phase.", takes: []string{api.HeaderTimeout}, body: api.Rotation{}, answers: ok("it is in that phase", api.Rotation{}), codes: metadata(api.CodeConflict, api.CodeTooLarge)},
	}
}

func nodeOperations() map[string]operation {
	ops := map[string]operation{
		"GET /v1/node/binary": {does: "Lists the binaries on this node's machine.", answers: ok("the binaries", api.Programs{}), codes: []api.Code{api.CodeConflict}},
		"POST /v1/node/binary": {
			does: "Checks whether a binary that is here could run this node.", body: api.ProgramCheck{}, answers: ok("it could", api.Program{}),
			codes: []api.Code{api.CodeConflict, api.CodeCheckFailed, api.CodeNotFound, api.CodeTooLarge},
		},
		"PUT /v1/node/binary": {
			does: "Takes in a binary, and checks it.", takes: []string{"sha256"}, body: raw("application/octet-stream"), answers: ok("it is staged", api.Program{}),
			codes: []api.Code{api.CodeConflict, api.CodeCheckFailed, api.CodeTooLarge},
		},
		"GET /v1/nodes":         {does: "Lists the members.", answers: ok("the members", api.NodeList{}), codes: []api.Code{api.CodeNotReady}},
		"GET /v1/node/requests": {does: "What this node counted of row requests.", answers: ok("the counts", api.RequestReport{})},
		"POST /v1/nodes/{node}/replace": {
			does: "Says that a node's disk is dead for ever: it may come back with an empty one.", takes: []string{"node", api.HeaderTimeout},
			answers: done("it may"), codes: metadata(api.CodeNodeNotFound, api.CodeConflict),
		},
	}
	for action, o := range map[string]operation{
		"drain":        {does: "hands over what it owns, and owns nothing while the claim lasts.", codes: []api.Code{api.CodeClaimed}},
		"undrain":      {does: "takes tables again.", codes: []api.Code{api.CodeClaimed}},
		"restart":      {does: "restarts in place.", codes: []api.Code{api.CodeClaimed, api.CodeCheckFailed, api.CodeConflict}},
		"certs/reload": {does: "looks at the files of its certificates.", codes: []api.Code{api.CodeConflict}},
	} {
		o.body, o.empty = api.NodeOrder{}, true
		o.answers = ok("its report", api.NodeReport{})
		if action == "restart" {
			o.answers = map[int]answer{202: {"its report; it restarts", api.NodeReport{}, nil}}
		}
		o.codes = append(o.codes, api.CodeStaleEpoch, api.CodeRollNotFound, api.CodeNotReady, api.CodeTooLarge)
		what := o.does
		o.does = "This node " + what
		ops["POST /v1/node/"+action] = o
		o.does = "Any node " + what
		o.takes = []string{"node"}
		o.codes = append(slices.Clone(o.codes), api.CodeNodeNotFound, api.CodeOwnerUnreachable, api.CodeOutcomeUnknown)
		ops["POST /v1/nodes/{node}/"+action] = o
	}
	return ops
}

func rollOperations() map[string]operation {
	ops := map[string]operation{
		"GET /v1/rolls":        {does: "Lists the last rolls, the newest first.", takes: []string{api.HeaderTimeout}, answers: ok("the rolls", api.RollList{}), codes: metadata()},
		"GET /v1/rolls/{roll}": {does: "Shows a roll.", takes: []string{"roll", api.HeaderTimeout}, answers: ok("the roll", api.Roll{}), codes: metadata(api.CodeRollNotFound)},
		"POST /v1/rolls": {
			does: "Starts a roll, with the lock.", takes: []string{api.HeaderTimeout}, body: api.RollChange{}, empty: true,
			answers: map[int]answer{201: {"it runs", api.Roll{}, nil}}, codes: metadata(api.CodeRollLocked, api.CodeTooLarge),
		},
	}
	for action, does := range map[string]string{
		"take": "Goes on with a roll, under its next epoch.", "renew": "Says that the roll's holder lives.", "note": "Notes the state of a node.",
		"end": "Pauses, finishes or aborts a roll.", "ask": "Asks the roll's holder to pause or to abort.", "unlock": "Takes the lock away from a roll's holder.",
	} {
		ops["POST /v1/rolls/{roll}/"+action] = operation{
			does: does, takes: []string{"roll", api.HeaderTimeout}, body: api.RollChange{}, empty: true, answers: ok("the roll", api.Roll{}),
			codes: metadata(api.CodeRollNotFound, api.CodeRollLocked, api.CodeStaleEpoch, api.CodeConflict, api.CodeTooLarge),
		}
	}
	return ops
}
