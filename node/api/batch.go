package api

// Change is one change of a batch: a row is put, or deleted.
type Change struct {
	Key    string
	Value  []byte // of a put
	Delete bool
}

// Size returns the bytes of keys and values that the request holds.
func (q *Request) Size() int {
	n := len(q.Key) + len(q.Value) + len(q.Range.From) + len(q.Range.To)
	for i := range q.Changes {
		n += len(q.Changes[i].Key) + len(q.Changes[i].Value)
	}
	return n
}

// BatchAnswer is the answer to a batch that was done.
type BatchAnswer struct {
	Changes int     `json:"changes"`
	Version Version `json:"version"` // that all rows have now which it put
}

// Range is what a scan reads: the keys from From on, before To, in the order of
// their bytes.
type Range struct {
	From  string
	To    string // "": to the end
	Limit int    // rows at most, up to MaxRows
}

// Row is a row as a scan gives it.
type Row struct {
	Key     string  `json:"key"`
	Version Version `json:"version"`
	Value   []byte  `json:"value_base64"`
}

// Page is a part of a scan.
type Page struct {
	Rows []Row  `json:"rows"`
	Next string `json:"next,omitempty"` // the last key, if more rows follow it; "": none do
}
