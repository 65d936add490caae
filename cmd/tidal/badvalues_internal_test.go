package main

import "strings"

// goodLines returns for each command arguments and flags that are right, to be made
// wrong in one place.
func goodLines() map[string]string {
	const self = "certs/nodes/a/tls.crt"
	return map[string]string{
		"serve": "--check --config=node.toml", "dev": "--dir=dev", "dev stop": "--dir=dev", "config explain": "--config=node.toml",
		"tables list": "", "tables create": "t", "tables describe": "t", "tables move": "t --from=a --to=b", "tables handover": "t",
		"tables check": "t", "tables drop": "t --yes",
		"rows put": "t k v", "rows get": "t k", "rows head": "t k", "rows delete": "t k", "rows list": "t", "rows load": "t rows.ndjson",
		"status": "", "top": "", "check": "", "bench": "", "wait ready": "", "wait level": "",
		"node list": "", "node drain": "b", "node undrain": "b", "node restart": "b", "node replace": "b --yes",
		"cluster init": "--members=a,b --yes", "cluster level": "", "cluster finalize": "--yes",
		"roll": "--yes", "roll plan": "", "roll status": "", "roll watch": "", "roll pause": "", "roll resume": "", "roll abort": "",
		"roll rollback": "--yes", "roll stage": "--binary=text", "roll history": "", "roll show": "1", "roll unlock": "--yes",
		"certs gen": "--dir=new --cluster=prod --node=a", "certs ca init": "--dir=new --cluster=prod",
		"certs issue node": "b --dir=certs", "certs issue client": "app=reader --dir=certs",
		"certs csr": "--dir=new --cluster=prod --node=b", "certs sign": "text --dir=certs --node=b", "certs renew": "--dir=certs",
		"certs check": "certs", "certs lint": self, "certs covers": self + " localhost", "certs verify": "127.0.0.1:1",
		"certs bundle show": "--dir=certs", "certs bundle add": "certs/bundle.crt --dir=certs", "certs bundle rm": strings.Repeat("a", 64) + " --dir=certs",
		"certs export k8s": "secret --dir=certs", "certs reload": "", "certs revoke": self,
		"certs rotate": "--dir=certs", "certs rotate status": "--dir=certs", "certs rotate rollback": "--dir=certs",
		"debug identity": "--data=data", "debug state": "--data=data", "debug log": "--data=data",
		"completion bash": "", "completion zsh": "", "completion fish": "", "__complete": "", "version": "",
	}
}

// takesMany returns the commands that take any number of arguments, with what they say
// to none; "": none is right.
func takesMany() map[string]string {
	return map[string]string{
		"certs issue node": "nobody is named", "certs issue client": "nobody is named", "certs check": "nothing to look at",
		"certs lint": "nothing to look at", "certs renew": "", "certs reload": "", "roll show": "",
	}
}

// badValues returns what the flags do not take, by "--flag", or by "command --flag"
// where a flag of that name has a meaning of its own. An empty row: any text is right.
func badValues() map[string][]wrong {
	durations := func(flag string, more ...string) (all []wrong) {
		for _, v := range append([]string{"soon", "5", "1s1", "s", "-1s", "9999999999h"}, more...) {
			all = append(all, wrong{value: v, says: "--" + flag})
		}
		return all
	}
	each := func(says string, values ...string) (all []wrong) {
		for _, v := range values {
			all = append(all, wrong{value: v, says: says})
		}
		return all
	}
	var text []wrong
	dir := []wrong{{value: "text", says: "text", code: exitConfig}, {value: "text/x", says: "text", code: exitConfig}}
	nodes := each("node", "B", "b_", "-b", "b c", strings.Repeat("b", 33))
	names := each("cluster", "Prod", "pr od", "-p", "p/q", strings.Repeat("p", 300))
	rows := map[string][]wrong{
		// where a cluster is
		"--cluster":  append(each("has no cluster", "nowhere", "devv", "DEV"), wrong{value: "pro", says: "did you mean prod?"}),
		"--endpoint": each("endpoint", "ftp://a", "a:1", "nohost", "https://", "https://a:99999", "https://a:1/x", "https://a:1?q", "https://u:p@a:1", "https://a:1#f", "https://a:0", "https://:1", "https://a b:1"),
		"--ca":       each("go with --endpoint", "nowhere"), "--cert": each("go with --endpoint", "nowhere"), "--key": each("go with --endpoint", "nowhere"),
		"certs check --cluster": each("has no cluster", "nowhere"), "certs verify --cluster": each("has no cluster", "nowhere"),
		"--output": each("unknown form", "yaml", "JSON", "table,json"),

		// certificates
		"certs gen --cluster": names, "certs ca init --cluster": names, "certs csr --cluster": names,
		"certs verify --ca":   {{value: "nowhere", says: "this side: nowhere", code: exitAuth}, {value: "certs", says: "this side: certs", code: exitAuth}},
		"certs verify --cert": each("go with --ca", "nowhere"), "certs verify --key": each("go with --ca", "nowhere"), "certs verify --node": nodes,
		"--dir":             dir,
		"dev --dir":         dir,
		"--node":            nodes,
		"certs lint --name": text, // which it judges
		"--name":            each("name", "a b", "-a", "a..b", "10.0.0.1:5000", "https://a"),
		"--client":          each("client", "app", "app=", "=reader", "a b=reader", "app=admn"),
		"--life":            durations("life", "0", "0d", "-3d", "1.5d", "213504d", "99999999999999d", "d"),
		"--allow":           each("name", "a b", "-a", "10.0.0.0/33", "https://a"),
		"--any-name":        text, "--shared-leaf": text, "--overwrite": text, "--all": text, "--rekey": text, "--list": text, "--force": text, "--dry-run": text,
		"--statefulset": each("exclude", "s"), "--service": each("no --statefulset", "s"), "--namespace": each("namespace", "N", "a b"),
		"certs gen --namespace": each("no --statefulset", "n"), "--cluster-domain": each("no --statefulset", "d"),
		"certs gen --nodes":       each("no --statefulset", "3"),
		"certs export k8s --node": each("no certificate of node/", "b", "../a"), "certs export k8s --client": each("no certificate of client/", "b", "../a"),
		"--soak":   durations("soak"),
		"--reason": text,

		// a node and its configuration: see badKeys
		"--config": {{value: "nowhere.toml", says: "nowhere.toml: no such file", code: exitConfig}}, "--single": text, "--check": text,
		"--log-format": each("unknown --log-format", "xml", "JSON"), "--log-level": each("unknown --log-level", "loud", "INFO"),
		"--data":  {{value: "nowhere", says: "nowhere is no data directory", code: exitConfig}, {value: "text", says: "text", code: exitConfig}, {value: "certs", says: "certs is no data directory", code: exitConfig}},
		"--group": text, "debug log --from": text, "debug log --limit": each("--limit", "0", "-1"),
		"dev --nodes": each("want 1 to 5", "0", "-1", "6"), "--detach": text,

		// tables, rows, nodes
		"--replicas":       each("--replicas", "0", "-1", "8"),
		"bench --replicas": each("--replicas", "-1", "8"),
		"--from":           each("--from", "B", "a b"), "--to": each("--to", "B", "a b"), "--no-wait": text,
		"rows list --from": text, "rows list --to": text, "--after": text, "--prefix": text, "--limit": each("--limit", "-1"),
		"--for": durations("for", "0s"), "tables handover --for": durations("for", "0s", "25h"),
		"--timeout":         durations("timeout", "0s"),
		"--consistency":     each("--consistency", "strong", "Local"),
		"--if-match":        each("--if-match", "2", "2.1", "x-y", "2-", "2-12,2-13", `W/"2-12"`),
		"--if-none-match":   each("--if-none-match", "2-12", "**"),
		"--idempotency-key": each("--idempotency-key", strings.Repeat("k", 257)),
		"--batch":           each("--batch", "0", "-1", "10001"), "--whole": text,
		"--yes": text, "--wait": text, "--hold": text, "--ttl": durations("ttl", "0s", "999ms", "25h"),
		"--members": each("--members", "a,a", "A,b", "a,,b", ","),

		// rolls
		"--only": {{value: "nowhere", says: "nowhere", asks: true}}, "--skip": {{value: "nowhere", says: "nowhere", asks: true}},
		"roll rollback --only": text, "roll rollback --skip": text, // known wrong only once the nodes have said what they ran before
		"roll rollback --binary": each("takes no --binary", "text"), "roll rollback --upgrade-to": each("takes no --upgrade-to", "v2"), "--by-zone": text, "--allow-unavailable": text,
		"--max-unavailable": each("--max-unavailable", "0", "-1"), "--pause-after": each("--pause-after", "-1"), "--max-refusals": text,
		"--settle": durations("settle"), "--stall": durations("stall", "0s", "999ms"),
		"--upgrade-to": text, "--binary": {{value: "nowhere", says: "nowhere", code: exitConfig}, {value: "certs", says: "certs", code: exitConfig}},
		"--driver": each("unknown driver", "ssh", "Exec"), "--command": each("go together", "true"), "--hook-before": text, "--hook-after": text,
		"--plan": {{value: "nowhere", says: "nowhere", code: exitConfig}, {value: "text", says: "text is no plan", code: exitConfig}}, "--out": text,

		// watching and measuring
		"--max-lag": each("--max-lag", "-1"), "--min-ready": each("--min-ready", "-1"), "--cert-days": each("--cert-days", "-1"),
		"--once": text, "--sort": each("cannot sort by", "colour", "--lag"), "--filter": each("filter", "size>3", "/(/", strings.Repeat("a", 1025)),
		"--interval": durations("interval", "1ms", "2m"), "--read-only": text, "--theme": each("no theme", "pink"), "--ascii": text,
		"--clients": each("--clients", "-1", "10001"), "--writers": each("--writers", "-1", "10001"), "--readers": each("--readers", "-1", "10001"),
		"--reads": each("--reads", "-1", "101", "NaN", "Inf"), "--tables": each("--tables", "0", "10001"), "--keys": each("--keys", "0", "1000000001"),
		"--size": each("--size", "-1", "1.5", "2MiB", "1KB", "x"), "--rate": each("--rate", "0", "-1", "NaN", "Inf", "1e300"), "--warmup": durations("warmup"), "--native": text,
		"--describe": text,
	}
	for key := range badKeys() {
		rows["--"+strings.ReplaceAll(key, ".", "-")] = text
	}
	return rows
}

// line is a command line, and what is wrong with it.
type badLine struct {
	line string
	says string
	asks bool // after it was said of which cluster
}

// badArguments are arguments that are none; ” is an empty one.
func badArguments() []badLine {
	long := strings.Repeat("k", 1025)
	var lines []badLine
	for _, called := range []string{"tables create", "tables describe", "tables move --from=a --to=b", "tables handover", "tables check", "tables drop --yes", "rows list", "rows load"} {
		for _, name := range []string{"''", "T", "t.x", "t/x", strings.Repeat("t", 65), "-t", "\xff"} {
			more := ""
			if called == "rows load" {
				more = " rows.ndjson"
			}
			lines = append(lines, badLine{line: called + " -- " + name + more, says: "table name"})
		}
	}
	for _, called := range []string{"rows get", "rows head", "rows delete", "rows put"} {
		more := ""
		if called == "rows put" {
			more = " v"
		}
		lines = append(
			lines,
			badLine{line: called + " T k" + more, says: "table name"}, badLine{line: called + " t ''" + more, says: "key is empty"},
			badLine{line: called + " t " + long + more, says: "1025 bytes"}, badLine{line: called + " t k\xff" + more, says: "UTF-8"},
		)
	}
	for _, called := range []string{"node drain", "node undrain", "node restart", "node replace --yes", "certs reload"} {
		for _, name := range []string{"''", "B", "b_", "../b", strings.Repeat("b", 33)} {
			lines = append(lines, badLine{line: called + " " + name, says: "node id"})
		}
	}
	return append(
		lines,
		badLine{line: "roll show 0", says: `"0" is no number of a roll`}, badLine{line: "roll show -- -1", says: `"-1" is no number`},
		badLine{line: "roll show last", says: `"last" is no number`}, badLine{line: "roll show 1 2", says: `unexpected argument "2"`},
		badLine{line: "certs issue node B --dir=certs", says: `"B"`}, badLine{line: "certs issue node b= --dir=certs", says: "names nothing behind the ="},
		badLine{line: "certs issue node '' --dir=certs", says: "node"}, badLine{line: "certs issue node b=x, --dir=certs", says: "name"},
		badLine{line: "certs issue node b b --dir=certs", says: "twice"},
		badLine{line: "certs issue client app --dir=certs", says: "has no role"}, badLine{line: "certs issue client app=admn --dir=certs", says: "admn"},
		badLine{line: "certs issue client A_/=reader --dir=certs", says: "A_/"}, badLine{line: "certs issue client '' --dir=certs", says: "client"},
		badLine{line: "certs renew node/z --dir=certs", says: "node/z"}, badLine{line: "certs renew a --dir=certs", says: `"a"`}, badLine{line: "certs renew '' --dir=certs", says: `""`},
		badLine{line: "certs covers certs/nodes/a/tls.crt ''", says: "name"}, badLine{line: "certs covers certs/nodes/a/tls.crt a:1", says: "port"},
		badLine{line: "certs verify ''", says: "no address of a server"}, badLine{line: "certs verify :8433", says: "no address"},
		badLine{line: "certs verify a:b:c", says: "no address"}, badLine{line: "certs verify a:99999", says: "no address"}, badLine{line: "certs verify https://", says: "no address"},
		badLine{line: "certs bundle rm zz --dir=certs", says: "zz"}, badLine{line: "certs bundle rm '' --dir=certs", says: "fingerprint"},
		badLine{line: "certs bundle rm " + strings.Repeat("a", 64) + " --dir=certs", says: "aaaa"},
		badLine{line: "certs export k8s S_ --dir=certs", says: "S_"}, badLine{line: "certs export k8s '' --dir=certs", says: `""`},
		badLine{line: "certs revoke 12ab", says: "no whole serial number"}, badLine{line: "certs revoke ''", says: "argument FILE-OR-SERIAL is empty"},
		badLine{line: "certs lint ''", says: "argument FILE is empty"}, badLine{line: "certs check ''", says: "argument DIR-OR-FILE is empty"}, badLine{line: "rows load t ''", says: "argument FILE|- is empty"},
		badLine{line: "sevre", says: "did you mean `tidal serve`"}, badLine{line: "help rwos", says: "did you mean `tidal rows`"},
		badLine{line: "-x", says: "unknown flag -x"}, badLine{line: "--xy=z", says: "unknown flag --xy"},
		badLine{line: "version --output", says: "needs a value"}, badLine{line: "completion tcsh", says: "no command `tidal completion tcsh`"},
	)
}

// badTogether are flags that exclude one another, or need one another.
func badTogether() []badLine {
	const gen = "certs gen --dir=new --cluster=prod "
	return []badLine{
		{line: "rows put t k v --if-match=2-12 --if-none-match=*", says: "cannot be there and not be there"},
		{line: "rows delete t k --if-match=* --if-none-match=*", says: "cannot be there and not be there"},
		{line: "rows load t rows.ndjson --whole --batch=5", says: "--whole makes one batch"},
		{line: gen + "--node=a --statefulset=s", says: "--node and --statefulset exclude each other"},
		{line: gen + "--statefulset=s", says: "service"},
		{line: gen + "--statefulset=s --service=x --namespace=n", says: "nodes"},
		{line: gen + "--statefulset=s --service=x --namespace=n --nodes=-1", says: "nodes"},
		{line: gen + "--statefulset=s --service=x --namespace=n --nodes=1000000000", says: "nodes"},
		{line: gen + "--statefulset=S --service=x --namespace=n --nodes=3", says: `"S"`},
		{line: gen + "--statefulset=s --service=X --namespace=n --nodes=3", says: `"X"`},
		{line: gen + "--statefulset=s --service=x --namespace=N --nodes=3", says: `"N"`},
		{line: gen + "--statefulset=s --service=x --namespace=n --nodes=3 --cluster-domain=a..b", says: `"a..b"`},
		{line: gen, says: "node"},
		{line: "certs gen --dir=new --node=a", says: "--cluster is missing"},
		{line: "certs gen --cluster=prod --node=a", says: "--dir is missing"},
		{line: gen + "--node=a --node=a", says: "twice"},
		{line: gen + "--node=a --client=x=reader --client=x=writer", says: "twice"},
		{line: gen + "--node=a --client=admin=reader", says: "admin"},
		{line: "certs ca init --dir=new", says: "--cluster is missing"},
		{line: "certs ca init --dir=new --cluster=prod --allow=example.com --any-name", says: "every name and one for some names"},
		{line: "certs csr --dir=new --cluster=prod", says: "0 are named"},
		{line: "certs csr --dir=new --cluster=prod --node=a --node=b", says: "one"},
		{line: "certs csr --dir=new --cluster=prod --node=a --client=x=reader", says: "one"},
		{line: "certs csr --dir=new --node=a", says: "--cluster is missing"},
		{line: "certs sign text --dir=certs", says: "--node"},
		{line: "certs sign text --node=a", says: "--dir is missing"},
		{line: "certs export k8s s --dir=certs --node=a --client=admin", says: "a secret of a node and one of a client"},
		{line: "certs export k8s s", says: "--dir is missing"},
		{line: "certs renew --dir=certs node/a --all", says: "some are named"},
		{line: "certs revoke 12ab --list", says: `unexpected argument "12ab"`},
		{line: "certs revoke --list --force", says: "--list"},
		{line: "certs verify 127.0.0.1:1 --cluster=dev --ca=certs/bundle.crt", says: "--cluster names one"},
		{line: "certs verify 127.0.0.1:1 --cert=certs/nodes/a/tls.crt", says: "go with --ca"},
		{line: "bench --writers=1 --clients=1", says: "do not go with"},
		{line: "bench --readers=1 --reads=50", says: "do not go with"},
		{line: "bench --clients=0", says: "no clients"},
		{line: "bench --writers=0 --readers=0", says: "no clients"},
		{line: "roll --plan=text --only=a --yes", says: "--only and --plan"},
		{line: "roll rollback --yes --binary=text", says: "it takes no --binary"},
		{line: "roll rollback --yes --upgrade-to=v2", says: "it takes no --upgrade-to"},
		{line: "roll --yes --driver=exec", says: "go together"},
		{line: "roll --yes --by-zone", says: "--by-zone, and one node at a time"},
		{line: "roll --yes --driver=manual --command=x", says: "go together"},
		{line: "roll --yes --driver=exec --command=true --binary=text", says: "--binary goes with --driver inplace", asks: true},
		{line: "roll stage", says: "--binary is missing"},
		{line: "tables move t --from=a", says: `--to is ""`},
		{line: "tables move t --to=a", says: `--from is ""`},
		{line: "tables move t --from=a --to=a", says: "the same node"},
		{line: "cluster init --yes", says: "--members"},
		{line: "dev", says: "--dir is missing"},
		{line: "dev stop", says: "--dir is missing"},
		{line: "debug identity", says: "--data is missing"},
		{line: "debug state", says: "--data is missing"},
		{line: "debug log", says: "--data is missing"},
	}
}

// badKeys returns what the keys of a node's configuration do not take.
func badKeys() map[string]map[string]string {
	return map[string]map[string]string{
		"node.id": {"B": "node.id"}, "node.data": {"text": "text"}, "node.listen": {"x": "node.listen"}, "node.advertise": {"x": "node.advertise"},
		"node.zone": {"Z": "node.zone"}, "disk.ballast": {"x": "disk.ballast"}, "disk.reserve": {"x": "disk.reserve"}, "cluster.name": {"P": "cluster.name"},
		"cluster.join": {"x": "cluster.join"}, "cluster.members": {"x": "cluster.members"}, "tls.ca": {"x": "tls"}, "tls.cert": {"x": "tls"}, "tls.key": {"x": "tls"},
	}
}
