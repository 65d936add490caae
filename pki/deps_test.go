package pki_test

import (
	"os/exec"
	"strings"
	"testing"
)

// The packages of smallstep that open databases, read a user's directory or
// panic on environment variables must not come in by the back door.
func TestWhatIsLinked(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "tidal/pki").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 100 {
		t.Fatalf("go list names %d packages: %s", len(deps), out)
	}
	const cas = "github.com/smallstep/certificates/"
	for _, d := range deps {
		name, ours := strings.CutPrefix(d, cas)
		if ours && name != "cas/softcas" && name != "cas/apiv1" {
			t.Errorf("%s is linked", d)
		}
		if strings.HasPrefix(d, "tidal/") && d != "tidal/pki" {
			t.Errorf("%s is linked: this package knows nothing of tidal", d)
		}
	}
}
