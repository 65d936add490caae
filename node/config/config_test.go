package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidal/node/config"
)

const good = `
[node]
id        = "a"
data      = "data"
listen    = "0.0.0.0:8433"
advertise = "https://10.0.0.1:8433"
zone      = "z1"

[disk]
ballast = "auto"
reserve = "4GiB"

[cluster]
name = "prod"
join = ["https://10.0.0.7:8433"]

[cluster.members]
a = "https://node-a:8433"
b = "https://[2001:db8::2]:8433"
c = "https://node-c.example.:8433"

[tls]
ca   = "certs/bundle.crt"
cert = "/etc/tidal/tls.crt"
key  = "tls.key"
`

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tidal.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func lookup(m map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := m[name]
		return v, ok
	}
}

func TestLoadFile(t *testing.T) {
	t.Parallel()
	variants := map[string]string{
		"as is": good,
		"crlf":  strings.ReplaceAll(good, "\n", "\r\n"),
		"bom":   "\xef\xbb\xbf" + good,
	}
	for name, text := range variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, text)
			dir := filepath.Dir(path)
			got, err := config.Load(config.Sources{File: path})
			if err != nil {
				t.Fatal(err)
			}
			want := config.Config{
				Node:    config.Node{ID: "a", Data: filepath.Join(dir, "data"), Listen: "0.0.0.0:8433", Advertise: "https://10.0.0.1:8433", Zone: "z1"},
				Disk:    config.Disk{Ballast: config.Auto, Reserve: "4GiB"},
				Cluster: config.Cluster{Name: "prod", Join: []string{"https://10.0.0.7:8433"}, Members: map[string]string{"a": "https://node-a:8433", "b": "https://[2001:db8::2]:8433", "c": "https://node-c.example.:8433"}},
				TLS:     config.TLS{CA: filepath.Join(dir, "certs/bundle.crt"), Cert: "/etc/tidal/tls.crt", Key: filepath.Join(dir, "tls.key")},
			}
			if diff := cmp.Diff(want, got.Config); diff != "" {
				t.Error(diff)
			}
			if err := got.Config.Validate(); err != nil {
				t.Errorf("Validate: %v", err)
			}
			for _, k := range config.Keys() {
				if want := "file " + path; got.Origin[k.Name] != want {
					t.Errorf("%s comes from %q, want %q", k.Name, got.Origin[k.Name], want)
				}
			}
		})
	}
}

// TestEveryField proves that no field of the configuration is without a key, and
// that each key is read from each of its sources, in the right order.
func TestEveryField(t *testing.T) {
	t.Parallel()
	var fields []string
	sections := reflect.TypeFor[config.Config]()
	for section := range sections.Fields() {
		for field := range section.Type.Fields() {
			fields = append(fields, section.Tag.Get("toml")+"."+field.Tag.Get("toml"))
		}
	}
	var keys []string
	for _, k := range config.Keys() {
		keys = append(keys, k.Name)
	}
	if diff := cmp.Diff(fields, keys); diff != "" {
		t.Fatalf("fields and keys differ:\n%s", diff)
	}
	for _, k := range config.Keys() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			testSources(t, k)
		})
	}
}

func testSources(t *testing.T, k config.Key) {
	t.Helper()
	if k.Doc == "" || k.Form == "" {
		t.Error("the key is not documented")
	}
	value := func(source string) string {
		if k.Name == "cluster.members" {
			return "a=/" + source
		}
		return "/" + source
	}
	section, name, _ := strings.Cut(k.Name, ".")
	inFile := name + " = '" + value("file") + "'"
	if k.Name == "cluster.members" {
		inFile = "members.a = '/file'"
	}
	if k.Name == "cluster.join" {
		inFile = "join = ['/file']"
	}
	s := config.Sources{}
	check := func(source, origin string) {
		t.Helper()
		e, err := config.Load(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := k.Value(e.Config); got != value(source) {
			t.Errorf("from %s: value %q", source, got)
		}
		if e.Origin[k.Name] != origin {
			t.Errorf("from %s: origin %q, want %q", source, e.Origin[k.Name], origin)
		}
	}
	s.File = write(t, "["+section+"]\n"+inFile+"\n")
	check("file", "file "+s.File)
	s.Env = lookup(map[string]string{k.Env(): value("env")})
	check("env", "environment "+k.Env())
	s.Flag = lookup(map[string]string{k.Flag(): value("flag")})
	check("flag", "flag --"+k.Flag())
}

func TestFileErrors(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, text, want string }{
		{"unknown key", "[node]\nid = 'a'\nadvertize = 'x'\n", ":3:1: unknown key node.advertize (did you mean node.advertise?)"},
		{"unknown section", "[nod]\nid = 'a'\n", ":1:2: unknown key nod (did you mean node?)"},
		{"unknown and unlike", "[cluster]\nfrobnicate_widgets = 1\n", ":2:1: unknown key cluster.frobnicate_widgets"},
		{"two unknown keys", "[tls]\ncart = 'a'\nkeys = 'b'\n", ":3:1: unknown key tls.keys (did you mean tls.key?)"},
		{"number for text", "[node]\nid = 7\n", ":2:6: node.id: an integer where a string belongs"},
		{"text for section", "node = 'a'\n", ": node: a string where a section belongs"},
		{"text for join", "[cluster]\njoin = 'a'\n", ": cluster.join: a string where a list of URLs belongs"},
		{"list for members", "[cluster]\nmembers = ['a']\n", ": cluster.members: an array where a section of ID = \"URL\" belongs"},
		{"number for a member", "[cluster.members]\na = 1\n", ":2:5: cluster.members.a: an integer where a string belongs"},
		{"not toml", "[node\n", ":1:6: "},
		{"twice", "[node]\nid = 'a'\nid = 'b'\n", ":3:1: "},
		{"not utf-8", "[node]\nid = '\xff'\n", "the file is not UTF-8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := config.Load(config.Sources{File: write(t, tt.text)})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant …%s", err, tt.want)
			}
		})
	}
	if _, err := config.Load(config.Sources{File: filepath.Join(t.TempDir(), "none.toml")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestMembersText(t *testing.T) {
	t.Parallel()
	load := func(text string) (config.Effective, error) {
		return config.Load(config.Sources{Env: lookup(map[string]string{"TIDAL_CLUSTER_MEMBERS": text})})
	}
	e, err := load("a=https://a:1, b=https://b:1")
	if diff := cmp.Diff(map[string]string{"a": "https://a:1", "b": "https://b:1"}, e.Config.Cluster.Members); err != nil || diff != "" {
		t.Error(err, diff)
	}
	for text, want := range map[string]string{
		"a":         `cluster.members: "a" is not of the form ID=URL`,
		"a=x,":      `cluster.members: "" is not of the form ID=URL`,
		"a=x,b,c":   `"b" is not of the form`,
		"a=x,a=y":   `node "a" is listed twice`,
		"=https://": `is not of the form ID=URL`,
	} {
		if _, err := load(text); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "environment TIDAL_CLUSTER_MEMBERS") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestEmptyEnvironmentSaysNothing(t *testing.T) {
	t.Parallel()
	e, err := config.Load(config.Sources{Env: lookup(map[string]string{"TIDAL_NODE_LISTEN": "", "TIDAL_CLUSTER_MEMBERS": ""})})
	if err != nil || e.Config.Node.Listen != "127.0.0.1:8433" || e.Origin["node.listen"] != "default" {
		t.Errorf("listen is %q from %q: %v", e.Config.Node.Listen, e.Origin["node.listen"], err)
	}
}

// FuzzFile proves that no file makes Load panic, or fail without naming the file.
func FuzzFile(f *testing.F) {
	f.Add(good)
	f.Add("[cluster]\nmembers = [{a = 1}]\n")
	f.Add("a.b.c = \"\"\"\n[[node]]\r\n")
	path := filepath.Join(f.TempDir(), "tidal.toml")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		e, err := config.Load(config.Sources{File: path})
		if err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("the file is not named: %v", err)
		}
		_ = e.Config.Validate()
	})
}

func TestSingle(t *testing.T) {
	t.Parallel()
	e, err := config.Load(config.Sources{Single: true, Flag: lookup(map[string]string{"node-data": "/d"})})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{
		Node:    config.Node{ID: "a", Data: "/d", Listen: "127.0.0.1:8433", Advertise: "http://127.0.0.1:8433"},
		Disk:    config.Disk{Ballast: config.Auto, Reserve: config.Auto},
		Cluster: config.Cluster{Name: "single", Members: map[string]string{"a": "http://127.0.0.1:8433"}},
	}
	if diff := cmp.Diff(want, e.Config); diff != "" {
		t.Error(diff)
	}
	if err := e.Config.Validate(); err != nil {
		t.Error(err)
	}
	if got := e.Origin["cluster.members"]; got != "flag --single" {
		t.Errorf("members come from %q", got)
	}
}

func TestSingleRefusesOthers(t *testing.T) {
	t.Parallel()
	_, err := config.Load(config.Sources{Single: true, File: write(t, good)})
	if err == nil || !strings.Contains(err.Error(), "--single") {
		t.Errorf("a list of three with --single: %v", err)
	}
}

func TestAdvertiseFromMembers(t *testing.T) {
	t.Parallel()
	e, err := config.Load(config.Sources{File: write(t, strings.ReplaceAll(good, "advertise", "#"))})
	if err != nil {
		t.Fatal(err)
	}
	if e.Config.Node.Advertise != "https://node-a:8433" || e.Origin["node.advertise"] != "cluster.members" {
		t.Errorf("advertise is %q from %q", e.Config.Node.Advertise, e.Origin["node.advertise"])
	}
}
