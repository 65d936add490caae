package server

import (
	"maps"
	"net/http"
	"slices"
)

// Lines returns every method and path that the server has, as "GET /health".
func (s *Server) Lines() []string { return slices.Sorted(maps.Keys(s.Needs())) }

// Needs returns what each of Lines needs of a client.
func (s *Server) Needs() map[string]string {
	routes := []*route{s.table, s.row, s.rows, s.replicas, s.owner, s.check, s.roll}
	for _, rt := range s.rollDo {
		routes = append(routes, rt)
	}
	for _, rt := range s.nodes {
		routes = append(routes, rt)
	}
	for _, rt := range s.fixed {
		routes = append(routes, rt)
	}
	lines := map[string]string{}
	for _, rt := range routes {
		for _, v := range rt.verbs {
			need := v.needs.role().String()
			switch v.needs { //nolint:exhaustive // the others are roles
			case needNothing:
				need = "nothing"
			case needCertificate:
				need = "a certificate"
			}
			lines[v.method+" "+rt.path] = need
		}
	}
	return lines
}

// BoundBodies bounds the bytes of bodies that are on their way at once.
func (s *Server) BoundBodies(bytes int64) { s.bodies.limit = bytes }

// Kept returns how many bytes the streams keep for answers that are to come.
func (s *Server) Kept() (bytes int) {
	for _, nc := range s.those(func(one *conn) bool { return one.stream != nil }) {
		st := s.conns.open[nc].stream
		st.out.Lock()
		bytes += cap(st.out.buf) + cap(st.out.spare)
		st.out.Unlock()
	}
	return bytes
}

// Lanes returns how many connections are lanes.
func (s *Server) Lanes() int {
	return len(s.those(func(one *conn) bool { return one.lane != nil }))
}

// Plain returns the request that a lane reads from the front of b, and its length
// without the body; false: it reads none.
func Plain(b []byte) (*http.Request, int, bool) {
	var p plain
	p.like(&http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1})
	head := headOf(b)
	return p.Request, head, head >= 0 && p.parse(b[:head])
}

// CloseWeb closes all connections that net/http has.
func (s *Server) CloseWeb() error { return s.web.Close() }
