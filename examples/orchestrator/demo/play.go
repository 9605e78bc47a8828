// Package demo plays the demonstration of the orchestrator on one machine, with real processes, and counts what they
// have written down.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/examples/orchestrator/control"
)

// play is one performance.
type play struct {
	*Cluster
	ctx      context.Context
	out      io.Writer
	start    time.Time
	jobs     []control.Job
	restarts int
}

// Play plays the whole demonstration and prints what happens. The flags are added to those of the control process.
func Play(ctx context.Context, out io.Writer, flags ...string) error {
	p := &play{Cluster: &Cluster{Control: flags}, ctx: ctx, out: out, start: time.Now()}
	return p.perform(p.begin, p.restart, p.quota, p.rollout, p.drain, p.evict, p.replace, p.fence, p.end)
}

// perform plays some acts in a temporary folder.
func (p *play) perform(acts ...func() error) (err error) {
	if p.Program, err = os.Executable(); err != nil {
		return err
	}
	if p.Dir, err = os.MkdirTemp("", "orchestrator"); err != nil {
		return err
	}
	defer os.RemoveAll(p.Dir) //nolint:errcheck // a temporary folder
	defer p.Close()
	for _, act := range acts {
		if err := act(); err != nil {
			return err
		}
	}
	return nil
}

// say prints what has happened.
func (p *play) say(format string, args ...any) {
	fmt.Fprintf(p.out, "%5.1fs  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// put puts a job and remembers it for the final count.
func (p *play) put(j control.Job, work ...string) error {
	if !slices.ContainsFunc(p.jobs, func(o control.Job) bool { return o.Name == j.Name }) {
		p.jobs = append(p.jobs, j)
	}
	return p.Put(p.ctx, j, work...)
}

// begin starts the control process, four agents in two zones, and a job of each kind.
func (p *play) begin() error {
	if err := p.StartAll(p.ctx, "a1", "a2", "b1", "b2"); err != nil {
		return err
	}
	p.say("control and four agents of two cores each are at work")
	return errors.Join(
		p.put(web, "-version", "v1"),
		p.put(control.Job{Name: "crunch", Kind: control.Batch, Count: 12, CPU: 250}, "-for", "1500ms"),
		p.put(control.Job{Name: "train", Kind: control.Gang, Count: 4, CPU: 500, Priority: 5, Level: "zone"}, "-for", "3s"),
	)
}

// web is the service to which everything in the demonstration happens.
var web = control.Job{Name: "web", Kind: control.Service, Count: 4, CPU: 500, Priority: 10, Missing: 1, Ready: true}

// kill kills the control process in the middle of its work, and starts the next one.
func (p *play) kill(while string) error {
	if err := p.KillControl(0); err != nil {
		return err
	}
	p.say("SIGKILL for the control process while %s", while)
	time.Sleep(300 * time.Millisecond)
	p.restarts++
	return p.Start(p.ctx)
}

func (p *play) restart() error {
	time.Sleep(700 * time.Millisecond)
	if err := p.kill("web, crunch and train begin"); err != nil {
		return err
	}
	for _, err := range []error{p.AwaitJob(p.ctx, "web", "serves", Serving), p.AwaitJob(p.ctx, "crunch", "is done", Done), p.AwaitJob(p.ctx, "train", "is done", Done)} {
		if err != nil {
			return err
		}
	}
	where := map[string]bool{}
	all, err := p.Books().Read()
	for _, e := range all {
		if strings.HasPrefix(e.Member, "train-") {
			where[e.Node[:1]] = true
		}
	}
	p.say("the next one went on: web serves, crunch is done, train is done, in %d zone", len(where))
	return err
}

// quota gives a queue room for two members at a time.
func (p *play) quota() error {
	lab := orbit.Queue{Nominal: map[string]int64{"cpu": 500}}
	if err := p.Call(p.ctx, http.MethodPut, "/queues/lab", lab, nil); err != nil {
		return err
	}
	if err := p.put(control.Job{Name: "lab", Kind: control.Batch, Count: 6, CPU: 250, Queue: "lab"}, "-for", "700ms"); err != nil {
		return err
	}
	var why control.Explained
	if err := p.Await(p.ctx, "the quota", func() (bool, error) {
		err := p.Call(p.ctx, http.MethodGet, "/jobs/lab/explain", nil, &why)
		return why.Waiting == 4 && len(why.Why) > 0, err
	}); err != nil {
		return err
	}
	p.say("lab: %d members wait: %s", why.Waiting, why.Why[0])
	return nil
}

// rollout replaces web by its next version, one member after the other, through another kill.
func (p *play) rollout() error {
	if err := p.put(web, "-version", "v2"); err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond)
	s, err := p.Job(p.ctx, "web")
	if err != nil {
		return err
	}
	if err := p.kill(fmt.Sprintf("web is rolled out, %d of %d members are new", s.Newest, s.Count)); err != nil {
		return err
	}
	if err := p.AwaitJob(p.ctx, "web", "is rolled out", Serving); err != nil {
		return err
	}
	all, err := p.Books().Read()
	p.say("web is rolled out; %d of its %d members ran at any time", least(all, "web-", web.Count), web.Count)
	return err
}

// least returns the smallest number of members with the prefix that ran at the same time, counted from the moment when
// all of them (full) ran for the first time.
func least(all []Entry, prefix string, full int) int {
	runs, fewest := map[string]bool{}, -1
	for _, e := range all {
		if !strings.HasPrefix(e.Member, prefix) {
			continue
		}
		if e.What == "begin" {
			runs[e.Member] = true
		} else {
			delete(runs, e.Member)
		}
		if len(runs) == full && fewest < 0 {
			fewest = full
		}
		fewest = min(fewest, len(runs))
	}
	return fewest
}

// drain empties a node.
func (p *play) drain() error {
	s, err := p.Job(p.ctx, "web")
	if err != nil {
		return err
	}
	node := string(s.On["web-0"])
	if err := p.Call(p.ctx, http.MethodPost, "/nodes/"+node+"/drain", nil, nil); err != nil {
		return err
	}
	if err := p.AwaitNode(p.ctx, node, func(n control.Node) bool { return len(n.Capsules)+len(n.Stopping) == 0 }); err != nil {
		return err
	}
	if err := p.AwaitJob(p.ctx, "web", "serves", Serving); err != nil {
		return err
	}
	p.say("node %s is drained, web serves elsewhere", node)
	return p.Call(p.ctx, http.MethodDelete, "/nodes/"+node+"/drain", nil, nil)
}

// evict fills the cluster with a batch, and submits urgent work that takes some of the batch's room.
func (p *play) evict() error {
	if err := errors.Join(p.AwaitJob(p.ctx, "lab", "is done", Done),
		p.put(control.Job{Name: "filler", Kind: control.Batch, Count: 12, CPU: 500, Ready: true}, "-for", "3s")); err != nil {
		return err
	}
	if err := p.AwaitJob(p.ctx, "filler", "runs", func(s control.Status) bool { return s.Ready >= 10 }); err != nil {
		return err
	}
	urgent := control.Job{Name: "urgent", Kind: control.Service, Count: 2, CPU: 1500, Priority: 100}
	if err := p.Put(p.ctx, urgent); err != nil {
		return err
	}
	if err := p.AwaitJob(p.ctx, "urgent", "serves", Serving); err != nil {
		return err
	}
	filler, err := p.Job(p.ctx, "filler")
	if err != nil {
		return err
	}
	kept, err := p.Job(p.ctx, "web")
	if err != nil {
		return err
	}
	p.say("urgent serves; %d members of filler have made way and wait, %d of web serve", filler.Pending, kept.Ready)
	return p.Call(p.ctx, http.MethodDelete, "/jobs/urgent", nil, nil)
}

// replace replaces an agent while all processes on its node run on.
func (p *play) replace() error {
	if err := p.Signal("a2", syscall.SIGTERM); err != nil {
		return err
	}
	if err := p.Agent("a2", "a"); err != nil {
		return err
	}
	p.say("the agent of a2 is replaced, as for an upgrade; what it runs goes on")
	if err := p.AwaitJob(p.ctx, "filler", "is done", Done); err != nil {
		return err
	}
	p.say("filler is done, too")
	return nil
}

// fence suspends an agent until its node is lost, and then resumes the agent.
func (p *play) fence() error {
	s, err := p.Job(p.ctx, "web")
	if err != nil {
		return err
	}
	node := string(s.On["web-1"])
	if err := p.Signal(node, syscall.SIGSTOP); err != nil {
		return err
	}
	p.say("the agent of %s is suspended; its node will be lost, and what runs there stops by itself before", node)
	elsewhere := func(s control.Status) bool { return s.On["web-1"] != orbit.NodeID(node) && Serving(s) }
	if err := p.AwaitJob(p.ctx, "web", "serves elsewhere", elsewhere); err != nil {
		return err
	}
	p.say("web serves elsewhere")
	if err := p.Signal(node, syscall.SIGCONT); err != nil {
		return err
	}
	if err := p.AwaitNode(p.ctx, node, func(n control.Node) bool { return n.State == orbit.Ready }); err != nil {
		return err
	}
	p.say("the agent goes on, and %s has joined anew, empty", node)
	return nil
}

// end counts what the processes have written, and prints the result.
func (p *play) end() error {
	n, err := p.count()
	if err != nil {
		return err
	}
	p.say("%d members of %d jobs were begun %d times by four agents", n.members, len(p.jobs), n.begun)
	fmt.Fprintf(p.out, "orchestrator: jobs %d, restarts %d, lost %d, doubled %d\n", len(p.jobs), p.restarts, n.lost, n.doubled)
	return nil
}

// counts are what the processes of all jobs have written.
type counts struct{ members, begun, lost, doubled int }

func (p *play) count() (n counts, err error) {
	all, err := p.Books().Read()
	if err != nil {
		return n, err
	}
	done := map[string]int{}
	for _, e := range all {
		switch e.What {
		case "begin":
			n.begun++
		case "done":
			done[e.Member]++
		case "doubled":
			n.doubled++
		}
	}
	for _, j := range p.jobs {
		for i := range j.Count {
			n.members++
			id := fmt.Sprintf("%s-%d", j.Name, i)
			runs, err := p.Books().Runs(id)
			if err != nil {
				return n, err
			}
			if j.Kind == control.Service && !runs || j.Kind != control.Service && done[id] == 0 {
				n.lost++
			}
		}
	}
	return n, nil
}
