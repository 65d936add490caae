package node_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// TestMetricsAreDocumented compares what a node shows with docs/metrics.md: names,
// types and labels.
func TestMetricsAreDocumented(t *testing.T) {
	c := newTrio(t, "a")
	c.secure()
	c.start("a")
	c.ready("a")
	// A first request of each kind brings its series.
	if code, body, _ := c.do(http.MethodPut, "a", "/v1/tables/t", []byte(`{"replicas":1}`)); code/100 != 2 {
		t.Fatalf("create a table: %d %s", code, body)
	}
	if code, body, _ := c.do(http.MethodPut, "a", "/v1/tables/t/rows/k", []byte("v")); code/100 != 2 {
		t.Fatalf("put a row: %d %s", code, body)
	}
	code, body, _ := c.do(http.MethodGet, "a", "/metrics", nil)
	if code != http.StatusOK {
		t.Fatalf("GET /metrics: %d %s", code, body)
	}
	problems, err := promlint.New(bytes.NewReader(body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	shown, documented := shownMetrics(string(body)), documentedMetrics(t)
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		switch want, ok := documented[name]; {
		case !ok:
			t.Errorf("docs/metrics.md lacks %s, a %s", name, shown[name])
		case want != shown[name]:
			t.Errorf("%s is a %s, and docs/metrics.md says %s", name, shown[name], want)
		}
	}
	for name := range documented {
		if shown[name] == "" {
			t.Errorf("docs/metrics.md has %s, and the node does not show it", name)
		}
	}
	// Whatever clients ask for, it brings no more series than there are answers.
	var series [2][]string
	for round := range series {
		for i := range 20 {
			name := fmt.Sprintf("%d-%d", round, i)
			c.do(http.MethodGet, "a", "/v1/tables/t"+name, nil)
			c.do(http.MethodPut, "a", "/v1/tables/t/rows/"+name, nil)
			c.do("M"+name, "a", "/v1/tables/t/rows/"+name, nil)
			c.do(http.MethodGet, "a", "/"+name, nil)
			c.do(http.MethodPost, "a", "/v1/nodes/"+name+"/drain", []byte(name))
		}
		_, body, _ = c.do(http.MethodGet, "a", "/metrics", nil)
		series[round] = regexp.MustCompile(`(?m)^tidal_http\w+(?:\{.*\})? `).FindAllString(string(body), -1)
	}
	if !slices.Equal(series[0], series[1]) || len(series[0]) < 10 {
		t.Errorf("requests for other names made of the series\n%s\nthese:\n%s", strings.Join(series[0], "\n"), strings.Join(series[1], "\n"))
	}
	if len(shown) < 10 {
		t.Errorf("only %d metrics were found", len(shown))
	}
}

// shownMetrics returns the type and labels of each metric of tidal's own.
func shownMetrics(body string) map[string]string {
	out := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (tidal_\w+) (\w+)$`).FindAllStringSubmatch(body, -1) {
		labels := map[string]bool{}
		series := regexp.MustCompile(`(?m)^` + m[1] + `(?:_bucket)?\{(.*)\} `)
		for _, s := range series.FindAllStringSubmatch(body, -1) {
			for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(s[1], -1) {
				if l[1] != "le" {
					labels[l[1]] = true
				}
			}
		}
		out[m[1]] = m[2] + " with labels " + strings.Join(slices.Sorted(maps.Keys(labels)), ", ")
	}
	return out
}

func documentedMetrics(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(tidal_\\w+)` \\| (\\w+) \\| ([^|]*)\\|").FindAllStringSubmatch(string(b), -1) {
		out[m[1]] = m[2] + " with labels " + strings.ReplaceAll(strings.TrimSpace(m[3]), "`", "")
	}
	return out
}
