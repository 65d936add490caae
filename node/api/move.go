package api

// Move is the body of POST /v1/tables/{table}/replicas: from one node to another.
type Move struct {
	From string `json:"from"`
	To   string `json:"to"`
}
