package wire

import (
	"fmt"
	"time"

	"tidal/node/api"
)

const handOverFormat = 1

// HandOver is an operator's order to hand a table over, on its way to the table's
// owner, and the owner's word of it to the node that gets the table.
type HandOver struct {
	Table     api.TableID
	Keep      bool             // the word to the node that gets it; else the order to its owner
	To        string           // node; "": the owner chooses
	TTL       time.Duration    // how long it stays there
	Owner     *api.Incarnation // only if that owns it; nil: whichever does
	By        string           // who, for people
	Principal api.Principal    // who gave the order
}

// AppendHandOver appends h.
func AppendHandOver(dst []byte, h *HandOver) []byte {
	dst = AppendUvarint(append(dst, handOverFormat), uint64(h.Table))
	dst = AppendBool(dst, h.Keep)
	dst = AppendString(dst, h.To)
	dst = AppendUvarint(dst, millis(h.TTL))
	dst = AppendBool(dst, h.Owner != nil)
	if h.Owner != nil {
		dst = AppendIncarnation(dst, *h.Owner)
	}
	dst = AppendString(dst, h.By)
	dst = AppendString(dst, h.Principal.Name)
	return append(dst, byte(h.Principal.Role))
}

// DecodeHandOver reads what AppendHandOver wrote; what a later release adds behind it
// is skipped.
func DecodeHandOver(b []byte) (HandOver, error) {
	r := NewReader(b)
	r.format("format of a hand-over", handOverFormat)
	h := HandOver{
		Table: api.TableID(r.Uvarint("table id")), Keep: r.Bool("keep"), To: r.String("to", maxText), TTL: r.millis("ttl"),
	}
	if r.Bool("owner") {
		h.Owner = new(r.Incarnation("owner"))
	}
	h.By = r.String("by", maxText)
	h.Principal = api.Principal{Name: r.String("name", maxText), Role: api.Role(r.Byte("role"))}
	if err := r.Err(); err != nil {
		return HandOver{}, fmt.Errorf("hand-over: %w", err)
	}
	return h, nil
}
