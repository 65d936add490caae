package proctest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// fault is one thing that the nemesis does for a while.
type fault struct {
	name  string
	nodes int           // that it has to itself
	long  time.Duration // at most
	begin func(who []int) (end func())
}

// kinds are all faults that can be made here. Of each list there is one at a time.
func (k *nemesis) kinds() [][]fault {
	processes := []fault{k.freeze(), k.kill(1), k.kill(nemesisNodes)}
	if k.net != nil {
		processes = append(processes, k.powerCut(1), k.powerCut(nemesisNodes), k.frozenDisk(),
			k.injected("slow fsync", "fsync,fdatasync:delay_enter=200000"), k.injected("failing fsync", "fsync,fdatasync:error=EIO:when=3+"), k.fullDisk())
	}
	return [][]fault{processes, k.partitions(), k.planned()}
}

// freeze stops a process and lets it go on.
func (k *nemesis) freeze() fault {
	return fault{"SIGSTOP", 1, 3 * time.Second, func(who []int) func() {
		n := k.nodes[who[0]]
		k.problem(n.signal(syscall.SIGSTOP))
		return func() { k.problem(n.signal(syscall.SIGCONT)) }
	}}
}

// kill ends processes and starts them again.
func (k *nemesis) kill(nodes int) fault {
	return fault{fmt.Sprintf("kill -9 of %d", nodes), nodes, time.Second, func(who []int) func() {
		k.killed(who)
		return func() { k.again(who) }
	}}
}

// again starts nodes, after an end to those that still run.
func (k *nemesis) again(who []int) {
	k.killed(who)
	for _, i := range who {
		k.nodes[i].start(k.t, k.o.faults)
	}
}

// powerCut has file systems lose what was not synced, and their nodes end: what the
// kernel still held is gone, as with the power. The nodes stand still first: an fsync
// that is under way while ext4 shuts down may return 0 for what is gone then, and no
// power cut leaves anybody the time to say so.
func (k *nemesis) powerCut(nodes int) fault {
	return fault{fmt.Sprintf("power cut of %d", nodes), nodes, time.Second, func(who []int) func() {
		for _, i := range who {
			k.problem(k.nodes[i].signal(syscall.SIGSTOP))
		}
		for _, i := range who {
			k.problem(poll(time.Second, k.nodes[i].standsStill))
		}
		for _, i := range who {
			k.problem(shutDown(k.data(k.nodes[i].id)))
		}
		k.killed(who)
		for _, i := range who {
			dir := k.data(k.nodes[i].id)
			k.problem(poll(5*time.Second, func() error { return program("umount", dir) }))
			k.problem(program("mount", "-o", "loop", dir+".img", dir))
		}
		return func() { k.again(who) }
	}}
}

// standsStill holds that no thread of a node's process can run: each is stopped, waits
// for a disk, or is gone.
func (n *node) standsStill() error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.cmd.Process.Pid))
	for _, name := range threads {
		stat, gone := os.ReadFile(name)
		if gone != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if state := rest[:min(len(rest), 1)]; !strings.Contains("TtDZX", state) {
			return fmt.Errorf("a thread of %s still runs: %s", n.id, state)
		}
	}
	return err
}

// shutDown ends a file system without a word to its disk: EXT4_IOC_SHUTDOWN.
func shutDown(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	const request, noLogFlush = 0x8004587d, 2
	flags := uint32(noLogFlush)
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(&flags)))
	if errno != 0 {
		err = fmt.Errorf("shut %s down: %w", dir, errno)
	}
	return errors.Join(err, f.Close())
}

func program(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return nil
}

// frozenDisk has a file system keep every write waiting.
func (k *nemesis) frozenDisk() fault {
	return fault{"frozen file system", 1, 4 * time.Second, func(who []int) func() {
		dir := k.data(k.nodes[who[0]].id)
		k.problem(program("fsfreeze", "--freeze", dir))
		return func() { k.problem(program("fsfreeze", "--unfreeze", dir)) }
	}}
}

// injected has strace meddle with a node's fsyncs. If the node ends, it starts again.
func (k *nemesis) injected(name, what string) fault {
	return fault{name, 1, 3 * time.Second, func(who []int) func() {
		n := k.nodes[who[0]]
		end, err := n.strace(what)
		k.problem(err)
		return func() {
			end()
			k.excused[who[0]] = time.Now()
		}
	}}
}

// fullDisk leaves less space than the reserve.
func (k *nemesis) fullDisk() fault {
	return fault{"full disk", 1, 4 * time.Second, func(who []int) func() {
		file := filepath.Join(k.data(k.nodes[who[0]].id), "filler")
		k.problem(fill(file, 30<<20))
		return func() {
			k.problem(errors.Join(os.Remove(file), program("sync", "-f", filepath.Dir(file)))) // a power cut must not bring it back
			k.excused[who[0]] = time.Now()
		}
	}}
}

// fill makes a file so large that so much is left.
func fill(file string, left int64) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	var s syscall.Statfs_t
	if err = syscall.Fstatfs(int(f.Fd()), &s); err == nil {
		free := int64(s.Bavail) * s.Bsize
		err = syscall.Fallocate(int(f.Fd()), 0, 0, max(1, free-left))
	}
	return errors.Join(err, f.Close())
}

// partitions cut nodes off from each other; clients reach them all the same.
func (k *nemesis) partitions() []fault {
	if k.net == nil {
		return k.proxied()
	}
	const long = 3 * time.Second
	all := func(who int) (others []int) {
		for i := range k.nodes {
			if i != who {
				others = append(others, i)
			}
		}
		return others
	}
	return []fault{
		{"one node cut off", 0, long, func([]int) func() {
			who := rand.IntN(len(k.nodes))
			return k.split(append(pairs([]int{who}, all(who)), pairs(all(who), []int{who})...))
		}},
		{"one node is not heard", 0, long, func([]int) func() {
			who := rand.IntN(len(k.nodes))
			return k.split(pairs([]int{who}, all(who)))
		}},
		{"one node does not hear", 0, long, func([]int) func() {
			who := rand.IntN(len(k.nodes))
			return k.split(pairs(all(who), []int{who}))
		}},
		{"two cut off from three", 0, long, func([]int) func() {
			who := rand.Perm(len(k.nodes))
			return k.split(append(pairs(who[:2], who[2:]), pairs(who[2:], who[:2])...))
		}},
		{"one way between two", 0, long, func([]int) func() {
			who := rand.Perm(len(k.nodes))
			return k.split(pairs(who[:1], who[1:2]))
		}},
		{"flapping", 0, 2 * long, func([]int) func() { return k.flap() }},
	}
}

// pairs are all ways from some nodes to others.
func pairs(from, to []int) (out [][2]int) {
	for _, f := range from {
		for _, t := range to {
			out = append(out, [2]int{f, t})
		}
	}
	return out
}

func (k *nemesis) split(ways [][2]int) (heal func()) {
	for _, w := range ways {
		k.problem(k.net.cut(w[0], w[1]))
	}
	return func() {
		for _, w := range ways {
			k.problem(k.net.heal(w[0], w[1]))
		}
	}
}

// flap cuts ways between two nodes and others, and heals them, a few times a second.
func (k *nemesis) flap() (end func()) {
	stop := make(chan struct{})
	over := make(chan struct{})
	who := rand.Perm(len(k.nodes))
	ways := pairs(who[:2], who[2:])
	go func() { // ends with stop
		defer close(over)
		for {
			heal := k.split(ways[rand.IntN(len(ways)):])
			pause(50*time.Millisecond + rand.N(400*time.Millisecond))
			heal()
			select {
			case <-time.After(50*time.Millisecond + rand.N(300*time.Millisecond)):
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-over
	}
}

// proxied are partitions by the proxies before the nodes: what others send to one.
func (k *nemesis) proxied() []fault {
	mode := func(name string, m proxyMode) fault {
		return fault{name, 0, 3 * time.Second, func([]int) func() {
			p := k.nodes[rand.IntN(len(k.nodes))].proxy
			p.set(m)
			return func() { p.set(proxyPass) }
		}}
	}
	return []fault{mode("connections swallowed", proxyBlack), mode("connections reset", proxyCut), mode("answers lost", proxyDeaf)}
}

// planned are what operators do.
func (k *nemesis) planned() []fault {
	return []fault{
		{"SIGTERM and a start", 1, 4 * time.Second, func(who []int) func() {
			k.problem(k.nodes[who[0]].signal(syscall.SIGTERM))
			return func() { k.again(who) }
		}},
		{"restart in place", 1, 2 * time.Second, func(who []int) func() {
			k.aside(http.MethodPost, "/v1/nodes/"+k.nodes[who[0]].id+"/restart", "")
			return func() {}
		}},
		{"rolling restart in place", 0, 10 * time.Second, func([]int) func() { return k.roll() }},
		{"drain", 0, 2 * time.Second, func([]int) func() {
			k.aside(http.MethodPost, "/v1/nodes/"+k.nodes[rand.IntN(len(k.nodes))].id+"/drain", `{"ttl":"2s"}`)
			return func() {}
		}},
		{"move of a replica", 0, 2 * time.Second, func([]int) func() {
			k.asides.Go(k.move)
			return func() {}
		}},
	}
}

// roll restarts one node after the other in place, each once the one before is ready
// or has had a few seconds for it.
func (k *nemesis) roll() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	k.asides.Go(func() {
		for _, i := range rand.Perm(len(k.nodes)) {
			a, err := k.call(i, http.MethodPost, "/v1/node/restart", "", nil)
			if err == nil && a.status == http.StatusAccepted {
				pause(300 * time.Millisecond)
				_ = poll(3*time.Second, func() error { return k.health(i) }) // others may have hit it meanwhile
			}
			if ctx.Err() != nil {
				return
			}
		}
	})
	return cancel
}

// move has a replica of some table go to another node.
func (k *nemesis) move() {
	table := k.tables[rand.IntN(len(k.tables))].Name
	has := map[string]bool{}
	for _, id := range k.replicas(table) {
		has[id] = true
	}
	var from, to string
	for _, i := range rand.Perm(len(k.nodes)) {
		if id := k.nodes[i].id; has[id] {
			from = id
		} else {
			to = id
		}
	}
	_, _ = k.call(rand.IntN(len(k.nodes)), http.MethodPost, "/v1/tables/"+table+"/replicas", fmt.Sprintf(`{"from":%q,"to":%q}`, from, to), nil) // it may be refused
}
