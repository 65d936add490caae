package server

// Lines returns every method and path that the server has, as "GET /health".
func (s *Server) Lines() []string {
	routes := []*route{s.table, s.row, s.replicas, s.check, s.roll}
	for _, rt := range s.rollDo {
		routes = append(routes, rt)
	}
	for _, rt := range s.nodes {
		routes = append(routes, rt)
	}
	for _, rt := range s.fixed {
		routes = append(routes, rt)
	}
	var lines []string
	for _, rt := range routes {
		for _, v := range rt.verbs {
			lines = append(lines, v.method+" "+rt.path)
		}
	}
	return lines
}

// BoundBodies bounds the bytes of bodies that are on their way at once.
func (s *Server) BoundBodies(bytes int64) { s.bodies.limit = bytes }
