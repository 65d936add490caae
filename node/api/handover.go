package api

import "time"

// DefaultStay is how long a table stays where it was handed over to, if whoever did
// that does not say.
const DefaultStay = 10 * time.Minute

// HandOver is the body of PUT /v1/tables/{table}/owner.
type HandOver struct {
	// To is the node that is to own the table; "" is any other that can.
	To string `json:"to,omitempty"`
	// TTL is how long the table stays there although its place is elsewhere, as
	// "10m"; "" is DefaultStay. It ends before if that node drains or ends.
	TTL string `json:"ttl,omitempty"`
	// ID and Owner are conditions: nothing is done unless the name is still that
	// table's, and that incarnation owns it.
	ID    *TableID     `json:"id,omitempty"`
	Owner *Incarnation `json:"owner,omitempty"`
	By    string       `json:"by,omitempty"` // who, for people; "" is the client's name
}

// Duration returns the TTL, or a bad-request error.
func (h *HandOver) Duration() (time.Duration, error) { return parseTTL(h.TTL, DefaultStay) }
