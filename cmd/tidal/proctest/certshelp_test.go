package proctest_test

import (
	"os/exec"
	"testing"
	"time"
)

// TestCertsHelpIsQuick holds what the certificate library costs at start: scripts
// call the command in loops. The minimum counts, since the machine may be busy.
func TestCertsHelpIsQuick(t *testing.T) {
	const runs, most = 20, 20 * time.Millisecond
	best := time.Hour
	for range runs {
		begun := time.Now()
		if out, err := exec.CommandContext(t.Context(), binary(t), "certs", "--help").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		best = min(best, time.Since(begun))
	}
	t.Logf("tidal certs --help: %v, the least of %d runs", best, runs)
	if best >= most {
		t.Errorf("tidal certs --help takes %v, the least of %d runs; want less than %v", best, runs, most)
	}
}
