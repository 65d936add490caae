package node

import (
	"context"
	"io"

	"tidal/node/api"
)

// programs shows the binaries on this node's machine to admins, and takes others in.
type programs struct{ n *node }

// usable is an error if nothing here can be replaced.
func (p programs) usable() error {
	switch {
	case p.n.o.Program == nil:
		return &api.Error{Code: api.CodeConflict, Message: "this node cannot be restarted in place: its binary is not its own to replace", Hint: "stop and start its process"}
	case p.n.keys == nil:
		// Everybody on the machine is an admin there.
		return &api.Error{
			Code: api.CodeConflict, Message: "a plaintext cluster takes no binaries: whoever reaches it could have it run anything",
			Hint: "put the binary where the old one is, and roll; or give the cluster certificates: tidal certs gen",
		}
	}
	return nil
}

// Programs implements server.Programs.
func (p programs) Programs(ctx context.Context) (api.Programs, error) {
	if err := p.usable(); err != nil {
		return api.Programs{}, err
	}
	list, err := p.n.o.Program.List(ctx)
	list.Node, list.Incarnation = p.n.o.Config.Node.ID, p.n.who.Incarnation
	return list, err
}

// CheckProgram implements server.Programs.
func (p programs) CheckProgram(ctx context.Context, sha256 string) (api.Program, error) {
	if err := p.usable(); err != nil {
		return api.Program{}, err
	}
	found, err := p.n.o.Program.Check(ctx, sha256)
	if err != nil {
		return found, checkFailed("the binary fails its check: ", err)
	}
	return found, nil
}

// StageProgram implements server.Programs.
func (p programs) StageProgram(ctx context.Context, sha256 string, content io.Reader) (api.Program, error) {
	if err := p.usable(); err != nil {
		return api.Program{}, err
	}
	p.n.log.InfoContext(ctx, "a binary is sent here", "sha256", sha256)
	staged, err := p.n.o.Program.Stage(ctx, sha256, content)
	if err != nil {
		return staged, checkFailed("the binary was not taken: ", err)
	}
	p.n.log.InfoContext(ctx, "a binary is staged", "sha256", sha256, "version", staged.Version, "path", staged.Path)
	return staged, nil
}
