package wire

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tidal/node/api"
)

const (
	requestFormat  = 1
	responseFormat = 1
	errorFormat    = 1

	maxPrincipal = 1024
	maxCode      = 64
	maxErrorText = 4096 // of an error's message and hint
)

// Bits of a request's flags. An unknown one is refused: a condition that is not
// understood must not be skipped.
const (
	requestKeyed = 1 << iota
	requestLocal
	requestIfMatch
	requestIfNoneMatch
	requestIfExists
	requestFlags = 1<<iota - 1
)

// AppendRequest appends q as it is at the time now: its deadline travels as the
// milliseconds left.
func AppendRequest(dst []byte, q *api.Request, now time.Time) []byte {
	var flags uint64
	if q.Keyed {
		flags |= requestKeyed
	}
	if q.Local {
		flags |= requestLocal
	}
	if len(q.IfMatch) > 0 {
		flags |= requestIfMatch
	}
	if q.IfNoneMatch {
		flags |= requestIfNoneMatch
	}
	if q.IfExists {
		flags |= requestIfExists
	}
	dst = slices.Grow(dst, 96+len(q.Table)+len(q.Key)+len(q.Value)+len(q.Range.From)+len(q.Range.To))
	dst = append(dst, requestFormat)
	dst = AppendUvarint(dst, flags)
	dst = append(dst, q.ID[:]...)
	dst = append(dst, byte(q.Op), q.Hops, byte(q.Principal.Role))
	dst = AppendString(dst, q.Principal.Name)
	var left time.Duration
	if !q.Deadline.IsZero() {
		left = max(q.Deadline.Sub(now), 1)
	}
	dst = AppendUvarint(dst, millis(left))
	dst = appendPosition(dst, q.Born)
	if len(q.IfMatch) > 0 {
		dst = appendTags(dst, q.IfMatch)
	}
	dst = AppendString(dst, q.Table)
	dst = AppendString(dst, q.Key)
	dst = AppendBytes(dst, q.Value)
	dst = AppendChanges(dst, q.Changes)
	dst = AppendString(dst, q.Range.From)
	dst = AppendString(dst, q.Range.To)
	return AppendUvarint(dst, uint64(q.Range.Limit))
}

// DecodeRequest reads what AppendRequest wrote, at the time now; the values
// alias b.
func DecodeRequest(b []byte, now time.Time) (*api.Request, error) {
	r := NewReader(b)
	r.format("request format", requestFormat)
	flags := r.Uvarint("flags")
	if flags&^requestFlags != 0 {
		r.Fail("flags", fmt.Sprintf("unknown bits in %#x", flags))
	}
	q := &api.Request{
		Keyed:       flags&requestKeyed != 0,
		Local:       flags&requestLocal != 0,
		IfNoneMatch: flags&requestIfNoneMatch != 0,
		IfExists:    flags&requestIfExists != 0,
		ID:          r.Array16("request id"),
		Op:          api.Op(r.Byte("operation")),
		Hops:        r.Byte("hops"),
	}
	q.Principal.Role = api.Role(r.Byte("role"))
	q.Principal.Name = r.String("principal", maxPrincipal)
	if left := r.millis("deadline"); left > 0 {
		q.Deadline = now.Add(left)
	}
	q.Born = r.position("born")
	if flags&requestIfMatch != 0 {
		q.IfMatch = r.tags("if-match")
	}
	q.Table = r.String("table", api.MaxTable)
	q.Key = r.String("key", api.MaxKey)
	q.Value = r.Bytes("value", api.MaxValue)
	q.Changes = r.changeList()
	q.Range.From = r.String("range from", api.MaxKey+1)
	q.Range.To = r.String("range to", api.MaxKey+1)
	q.Range.Limit = r.limit("limit")
	if q.Op == api.OpBatch && flags&(requestIfMatch|requestIfNoneMatch|requestIfExists) != 0 {
		r.Fail("flags", "a batch with a condition")
	}
	if err := r.Done(); err != nil {
		return nil, err
	}
	return q, nil
}

// AppendResponse appends p.
func AppendResponse(dst []byte, p *api.Response) []byte {
	n := 48 + len(p.Value)
	for i := range p.Rows {
		n += rowBytes + len(p.Rows[i].Key) + len(p.Rows[i].Value)
	}
	dst = append(slices.Grow(dst, n), responseFormat)
	dst = AppendBool(dst, p.Found)
	dst = append(dst, p.Hops)
	dst = appendPosition(dst, p.Version)
	dst = AppendUvarint(dst, uint64(p.Size))
	dst = AppendUvarint(dst, p.Lag)
	dst = AppendString(dst, p.Owner)
	dst = AppendBytes(dst, p.Value)
	dst = AppendUvarint(dst, uint64(len(p.Rows)))
	for i := range p.Rows {
		row := &p.Rows[i]
		dst = AppendBytes(AppendString(appendPosition(dst, row.Version), row.Key), row.Value)
	}
	return AppendBool(dst, p.More)
}

// DecodeResponse reads what AppendResponse wrote; the value aliases b.
func DecodeResponse(b []byte) (*api.Response, error) {
	r := NewReader(b)
	r.format("response format", responseFormat)
	p := &api.Response{
		Found:   r.Bool("found"),
		Hops:    r.Byte("hops"),
		Version: r.position("version"),
		Size:    r.size("size"),
		Lag:     r.Uvarint("lag"),
		Owner:   r.String("owner", api.MaxNode),
		Value:   r.Bytes("value", api.MaxValue),
		Rows:    r.rows(),
		More:    r.Bool("more"),
	}
	if err := r.Done(); err != nil {
		return nil, err
	}
	return p, nil
}

// AppendError appends e; a longer message or hint than 4 KiB is cut.
func AppendError(dst []byte, e *api.Error) []byte {
	dst = append(dst, errorFormat)
	dst = AppendString(dst, clip(string(e.Code), maxCode))
	dst = AppendString(dst, clip(e.Message, maxErrorText))
	dst = AppendString(dst, clip(e.Hint, maxErrorText))
	dst = AppendUvarint(dst, millis(max(e.RetryAfter, 0)))
	dst = AppendString(dst, clip(e.Owner, api.MaxNode))
	return appendPosition(dst, e.At)
}

// DecodeError reads what AppendError wrote.
func DecodeError(b []byte) (*api.Error, error) {
	r := NewReader(b)
	r.format("error format", errorFormat)
	e := &api.Error{
		Code:       api.Code(r.String("code", maxCode)),
		Message:    r.String("message", maxErrorText),
		Hint:       r.String("hint", maxErrorText),
		RetryAfter: r.millis("retry after"),
		Owner:      r.String("owner", api.MaxNode),
		At:         r.position("at"),
	}
	if err := r.Done(); err != nil {
		return nil, err
	}
	return e, nil
}

func clip(s string, limit int) string {
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "")
	}
	return s
}

func appendPosition(dst []byte, p api.Position) []byte {
	return AppendUvarint(AppendUvarint(dst, uint64(p.Table)), p.Index)
}

func (r *Reader) position(field string) api.Position {
	return api.Position{Table: api.TableID(r.Uvarint(field)), Index: r.Uvarint(field)}
}

// appendTags appends the versions of a condition.
func appendTags(dst []byte, tags []api.Version) []byte {
	dst = AppendUvarint(dst, uint64(len(tags)))
	for _, v := range tags {
		dst = appendPosition(dst, v)
	}
	return dst
}

// tags reads the versions of a condition that is there: one at least.
func (r *Reader) tags(field string) []api.Version {
	n := r.Count(field, 2)
	if r.Err() == nil && (n == 0 || n > api.MaxTags) {
		r.Fail(field, fmt.Sprintf("%d entity tags, want 1 to %d", n, api.MaxTags))
	}
	if r.Err() != nil {
		return nil
	}
	tags := make([]api.Version, n)
	for i := range tags {
		tags[i] = r.position(field)
	}
	return tags
}

// minRow is the least that a row takes in a response, rowBytes what it takes there
// beside its key and value, or nearly.
const (
	minRow   = 4
	rowBytes = 16
)

// rows reads the rows of a scan; their values alias the input.
func (r *Reader) rows() []api.Row {
	n := r.Count("rows", minRow)
	if n > api.MaxRows {
		r.Fail("rows", fmt.Sprintf("%d of them, the limit is %d", n, api.MaxRows))
	}
	if n == 0 || r.Err() != nil {
		return nil
	}
	rows := make([]api.Row, n)
	for i := range rows {
		rows[i] = api.Row{Version: r.position("version"), Key: r.String("key", api.MaxKey), Value: r.Bytes("value", api.MaxValue)}
	}
	return rows
}

// limit reads how many rows a scan may give at most.
func (r *Reader) limit(field string) int {
	n := r.Uvarint(field)
	if n > api.MaxRows {
		r.Fail(field, fmt.Sprintf("%d rows, the limit is %d", n, api.MaxRows))
		return 0
	}
	return int(n)
}

// size reads the size of a row's value.
func (r *Reader) size(field string) int {
	n := r.Uvarint(field)
	if n > api.MaxValue {
		r.Fail(field, fmt.Sprintf("%d bytes, the limit is %d", n, api.MaxValue))
		return 0
	}
	return int(n)
}

// format reads the version byte of a format of which one version exists.
func (r *Reader) format(field string, want byte) { //nolint:unparam // each format has a version of its own
	if v := r.Byte(field); v != want {
		r.Fail(field, fmt.Sprintf("%d, this release reads %d", v, want))
	}
}
