package node

import (
	"testing"

	"tidal/node/api"
	"tidal/node/internal/wire"
	"tidal/pki"
)

// The owner looks at a forwarded request's client again, whoever let it in: a node
// that forwards more than it may does not thereby do it.
func TestForwardedRoles(t *testing.T) {
	for _, op := range api.Ops() {
		for _, role := range []api.Role{api.RoleNone, api.RoleReader, api.RoleWriter, api.RoleAdmin} {
			need := api.RoleReader
			if op == api.OpPut || op == api.OpDelete || op == api.OpBatch {
				need = api.RoleWriter
			}
			err := allowed(&api.Request{Op: op, Principal: api.Principal{Name: "x", Role: role}})
			if (err == nil) != (role >= need) || err != nil && api.CodeOf(err) != api.CodeForbidden {
				t.Errorf("%s by a %s: %v", op, role, err)
			}
		}
	}
	n := &node{}
	for _, action := range []api.NodeAction{api.NodeDrain, api.NodeUndrain, api.NodeRestart, api.NodeCerts} {
		_, err := n.obey(t.Context(), wire.Order{Action: action, Principal: api.Principal{Name: "x", Role: api.RoleWriter}})
		if api.CodeOf(err) != api.CodeForbidden {
			t.Errorf("%s by a writer: %v", action, err)
		}
	}
}

// TestNobodyIsLocal: who comes without a certificate may do everything in a plaintext cluster,
// and nothing in another.
func TestNobodyIsLocal(t *testing.T) {
	if who, err := (&node{}).principal(nil); err != nil || who.Role != api.RoleAdmin {
		t.Errorf("in plaintext: %+v, %v", who, err)
	}
	if who, err := (&node{keys: &pki.Keypair{}}).principal(nil); err == nil || who.Role != api.RoleNone {
		t.Errorf("with certificates: %+v, %v", who, err)
	}
}
