package table

import (
	"fmt"

	"tidal/node/api"
	"tidal/node/internal/store"
)

// pageChunk is how much is allocated at a time for the values of a page.
const pageChunk = 64 << 10

// Page returns the first rows of a range as the database has them at one moment: no
// more than its limit, and no more after those that take api.PageBytes together.
// more reports that others follow. Values are the caller's.
func Page(db Scanner, table api.TableID, in api.Range) (rows []api.Row, more bool, err error) {
	lo, hi := rowKey(table, in.From), store.GroupEnd(uint64(table), SubRow)
	if in.To != "" {
		if in.To <= in.From {
			return nil, false, nil
		}
		hi = rowKey(table, in.To)
	}
	p := page{prefix: len(lo) - len(in.From), table: table}
	err = db.Scan(lo, hi, func(k, v []byte) error {
		if len(p.rows) >= in.Limit || p.size >= api.PageBytes {
			more = true
			return store.ErrStop
		}
		return p.add(k, v)
	})
	return p.rows, more, err
}

// page is a page as it fills.
type page struct {
	table  api.TableID
	prefix int // of the database's keys
	rows   []api.Row
	size   int // bytes of keys and values
	chunk  []byte
}

func (p *page) add(k, v []byte) error {
	key := string(k[p.prefix:])
	row, err := decodeRow(v)
	if err != nil {
		return fmt.Errorf("table %s: row %q: %w", p.table, key, err)
	}
	if len(row.Value) > cap(p.chunk)-len(p.chunk) {
		p.chunk = make([]byte, 0, max(pageChunk, len(row.Value)))
	}
	at := len(p.chunk)
	p.chunk = append(p.chunk, row.Value...)
	p.rows = append(p.rows, api.Row{
		Key: key, Value: p.chunk[at:len(p.chunk):len(p.chunk)],
		Version: api.Version{Table: p.table, Index: row.Version},
	})
	p.size += len(key) + len(row.Value)
	return nil
}
