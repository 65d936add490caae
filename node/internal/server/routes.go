package server

import (
	"net/http"

	"tidal/node/api"
)

// need is what a client must show to use a route.
type need uint8

const (
	needNothing     need = iota // anybody who reaches the port
	needCertificate             // any certificate of this cluster
	needReader
	needWriter
	needAdmin
)

// role is the role behind a need.
func (n need) role() api.Role {
	switch n {
	case needReader:
		return api.RoleReader
	case needWriter:
		return api.RoleWriter
	case needAdmin:
		return api.RoleAdmin
	case needNothing, needCertificate:
	}
	return api.RoleNone
}

// verb is one method of a route.
type verb struct {
	method string
	needs  need
	do     func(*exchange) error
}

// route is one path, or shape of a path, with its methods.
type route struct {
	path   string // as in docs/http-api.md
	counts bool   // its requests are activity: a stopping node waits for them
	allow  string // the methods, as the header Allow lists them
	verbs  []verb
}

// verb returns the route's verb for a method, nil if it has none. HEAD is GET
// without its body, which net/http cuts off.
func (rt *route) verb(method string) *verb {
	head := -1
	for i := range rt.verbs {
		switch m := rt.verbs[i].method; {
		case m == method:
			return &rt.verbs[i]
		case m == http.MethodGet && method == http.MethodHead:
			head = i
		}
	}
	if head < 0 {
		return nil
	}
	return &rt.verbs[head]
}

func newRoute(path string, verbs ...verb) *route {
	rt := &route{path: path, verbs: verbs}
	for i, v := range verbs {
		if i > 0 {
			rt.allow += ", "
		}
		rt.allow += v.method
		if v.method == http.MethodGet && !hasHead(verbs) {
			rt.allow += ", " + http.MethodHead
		}
	}
	return rt
}

func hasHead(verbs []verb) bool {
	for _, v := range verbs {
		if v.method == http.MethodHead {
			return true
		}
	}
	return false
}

func get(path string, n need, do func(*exchange) error) *route {
	return newRoute(path, verb{http.MethodGet, n, do})
}

// fixedRoutes returns the routes whose paths have no variable part.
func fixedRoutes(o Options) map[string]*route {
	list := get("/v1/tables", needReader, (*exchange).listTables)
	list.counts = true
	routes := []*route{
		list,
		get("/health", needNothing, health(CheckReady)),
		get("/readyz", needNothing, health(CheckReady)),
		get("/health/startup", needNothing, health(CheckStartup)),
		get("/health/live", needNothing, health(CheckLive)),
		get("/livez", needNothing, health(CheckLive)),
		get("/cluster/status", needReader, (*exchange).clusterStatus),
		get("/cluster/status/local", needReader, (*exchange).localStatus),
		get("/cluster/events", needReader, (*exchange).events),
		get("/v1/nodes", needReader, (*exchange).listNodes),
		get("/v1/node/requests", needReader, (*exchange).requests),
		rollsRoute(),
		streamRoute(),
	}
	routes = append(routes, revokedRoute(), rotationRoute(), foundRoute(), levelRoute(), programsRoute())
	for _, rt := range nodeRoutes("/v1/node/") {
		routes = append(routes, rt)
	}
	if o.Metrics != nil {
		routes = append(routes, get("/metrics", needCertificate, handled(o.Metrics)))
	}
	if o.Peer != nil {
		routes = append(routes, get("/internal/peer", needNothing, handled(o.Peer)))
	}
	fixed := make(map[string]*route, len(routes))
	for _, rt := range routes {
		fixed[rt.path] = rt
	}
	return fixed
}

func tableRoute() *route {
	rt := newRoute("/v1/tables/{table}",
		verb{http.MethodGet, needReader, (*exchange).getTable},
		verb{http.MethodPut, needAdmin, (*exchange).putTable},
		verb{http.MethodDelete, needAdmin, (*exchange).dropTable},
	)
	rt.counts = true
	return rt
}

func rowRoute() *route {
	rt := newRoute(rowPath,
		verb{http.MethodGet, needReader, (*exchange).getRow},
		verb{http.MethodHead, needReader, (*exchange).headRow},
		verb{http.MethodPut, needWriter, (*exchange).putRow},
		verb{http.MethodDelete, needWriter, (*exchange).deleteRow},
	)
	rt.counts = true
	return rt
}
