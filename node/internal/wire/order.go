package wire

import (
	"fmt"

	"tidal/node/api"
)

const (
	orderFormat  = 1
	reportFormat = 1
)

// Order is an operator's order to a node, on its way to it.
type Order struct {
	Action    api.NodeAction
	Order     api.NodeOrder
	Principal api.Principal // who gave it
}

// AppendOrder appends o.
func AppendOrder(dst []byte, o *Order) []byte {
	dst = append(dst, orderFormat, byte(o.Action))
	dst = AppendString(dst, o.Order.TTL)
	dst = AppendUvarint(dst, o.Order.Epoch)
	dst = AppendString(dst, o.Order.By)
	dst = AppendString(dst, o.Principal.Name)
	dst = append(dst, byte(o.Principal.Role))
	return AppendString(AppendUvarint(dst, o.Order.Roll), o.Order.Binary)
}

// DecodeOrder reads what AppendOrder wrote; what a later release adds behind it
// is skipped.
func DecodeOrder(b []byte) (Order, error) {
	r := NewReader(b)
	r.format("format of an order", orderFormat)
	o := Order{Action: api.NodeAction(r.Byte("action"))}
	o.Order = api.NodeOrder{TTL: r.String("ttl", maxText), Epoch: r.Uvarint("epoch"), By: r.String("by", maxText)}
	o.Principal = api.Principal{Name: r.String("name", maxText), Role: api.Role(r.Byte("role"))}
	o.Order.Roll, o.Order.Binary = r.Uvarint("roll"), r.String("binary", maxText)
	if err := r.Err(); err != nil {
		return Order{}, fmt.Errorf("order: %w", err)
	}
	return o, nil
}

// AppendReport appends a node's answer to an order.
func AppendReport(dst []byte, p *api.NodeReport) []byte {
	dst = AppendIncarnation(append(dst, reportFormat), p.Incarnation)
	dst = AppendString(dst, p.Phase)
	dst = AppendBool(dst, p.Draining)
	dst = AppendUvarint(dst, uint64(p.Owned))
	dst = AppendBool(dst, p.Claim != nil)
	if c := p.Claim; c != nil {
		dst = AppendString(dst, c.By)
		dst = AppendUvarint(dst, c.Epoch)
		dst = AppendString(dst, c.EndsIn)
		dst = AppendUvarint(dst, c.Roll)
	}
	return appendCertificates(dst, p.Certificates)
}

// DecodeReport reads what AppendReport wrote; what a later release adds behind it
// is skipped.
func DecodeReport(b []byte) (api.NodeReport, error) {
	r := NewReader(b)
	r.format("format of a report", reportFormat)
	p := api.NodeReport{
		Incarnation: r.Incarnation("incarnation"), Phase: r.String("phase", maxText),
		Draining: r.Bool("draining"), Owned: int(r.Uvarint("tables owned")),
	}
	p.Node = p.Incarnation.Node
	if r.Bool("claim") {
		p.Claim = &api.Claim{By: r.String("by", maxText), Epoch: r.Uvarint("epoch"), EndsIn: r.String("ends in", maxText), Roll: r.Uvarint("roll")}
	}
	p.Certificates = readCertificates(r)
	if err := r.Err(); err != nil {
		return api.NodeReport{}, fmt.Errorf("report: %w", err)
	}
	return p, nil
}
