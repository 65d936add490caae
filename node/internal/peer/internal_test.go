package peer

import "testing"

func TestParseAddress(t *testing.T) {
	good := map[string]target{
		"https://node-a:8433":         {secure: true, host: "node-a:8433", name: "node-a"},
		"http://127.0.0.1:1":          {host: "127.0.0.1:1", name: "127.0.0.1"},
		"https://[::1]:8433":          {secure: true, host: "[::1]:8433", name: "::1"},
		"https://a.svc.cluster.:8433": {secure: true, host: "a.svc.cluster.:8433", name: "a.svc.cluster"},
	}
	for address, want := range good {
		if got, err := parseAddress(address); err != nil || got != want {
			t.Errorf("%s is read as %+v, %v", address, got, err)
		}
	}
	for _, address := range []string{"", "a:1", "https://a", "https://:1", "ftp://a:1", "https://a:b", "https://[::1:1", "http://a:1:2"} {
		if got, err := parseAddress(address); err == nil {
			t.Errorf("%q is read as %+v", address, got)
		}
	}
}
