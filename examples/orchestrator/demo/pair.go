package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/examples/orchestrator/control"
)

// PlayPair plays with two control processes and four agents, and prints what happens: one control process is killed, and
// later the other one is suspended. Agents go to the one that is left. No node is lost, nothing that runs is touched, and
// what is ordered meanwhile runs. The flags are added to those of the control processes. If they name no ledger, PlayPair
// starts an etcd, for which the program must call process.Main with the role of package cluster.
func PlayPair(ctx context.Context, out io.Writer, flags ...string) (err error) {
	if !slices.ContainsFunc(flags, func(flag string) bool { return strings.HasPrefix(strings.TrimLeft(flag, "-"), "ledger") }) {
		etcd, failed := cluster.Start(ctx, cluster.Options{NoSync: true})
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, etcd.Close()) }()
		flags = append(slices.Clone(flags), "-ledger", "etcd:"+strings.Join(etcd.Endpoints(), ","))
	}
	p := &play{Cluster: &Cluster{Control: flags, Controls: 2, TTL: 4 * time.Second}, ctx: ctx, out: out, start: time.Now()}
	return p.perform(p.beginPair, p.killOne, p.suspendOther, p.endPair)
}

// beginPair starts two control processes, four agents in two zones, and a job of each kind. There is room for all that is
// ordered, so nothing has to make way.
func (p *play) beginPair() error {
	if err := p.StartAll(p.ctx, "a1", "a2", "b1", "b2"); err != nil {
		return err
	}
	p.say("two control processes and four agents of two cores each are at work")
	return errors.Join(
		p.put(web, "-version", "v1"),
		p.put(control.Job{Name: "crunch", Kind: control.Batch, Count: 8, CPU: 250}, "-for", "1500ms"),
		p.put(control.Job{Name: "train", Kind: control.Gang, Count: 4, CPU: 250, Level: "zone"}, "-for", "3s"),
	)
}

// killOne kills the first control process while the jobs begin, orders more at the other one, and starts the first one again.
func (p *play) killOne() error {
	if err := p.AwaitJob(p.ctx, "web", "begins", func(s control.Status) bool { return s.Ready > 0 }); err != nil {
		return err
	}
	if err := p.KillControl(0); err != nil {
		return err
	}
	p.say("SIGKILL for the first control process while web, crunch and train begin")
	if err := p.put(control.Job{Name: "late", Kind: control.Batch, Count: 6, CPU: 250}, "-for", "500ms"); err != nil {
		return err
	}
	for _, name := range []string{"crunch", "train", "late"} {
		if err := p.AwaitJob(p.ctx, name, "is done", Done); err != nil {
			return err
		}
	}
	if err := p.quiet("web serves; crunch, train and late, which was ordered since, are done"); err != nil {
		return err
	}
	p.restarts++
	return p.Start(p.ctx)
}

// suspendOther suspends the second control process, to which all agents report by now, for so long that all nodes would be
// lost.
func (p *play) suspendOther() error {
	if err := p.SignalControl(1, syscall.SIGSTOP); err != nil {
		return err
	}
	p.say("the first one is back; the second one is suspended")
	if err := p.put(control.Job{Name: "later", Kind: control.Batch, Count: 6, CPU: 250}, "-for", "500ms"); err != nil {
		return err
	}
	if err := p.AwaitJob(p.ctx, "later", "is done", Done); err != nil {
		return err
	}
	time.Sleep(2 * p.ttl())
	if err := p.quiet("later is done, too"); err != nil {
		return err
	}
	if err := p.SignalControl(1, syscall.SIGCONT); err != nil {
		return err
	}
	time.Sleep(p.ttl() / 2)
	return p.quiet("the second one goes on")
}

// quiet requires that no node has been given up, and that all members of web serve.
func (p *play) quiet(what string) error {
	if err := p.AwaitJob(p.ctx, "web", "serves", Serving); err != nil {
		return err
	}
	for _, node := range []string{"a1", "a2", "b1", "b2"} {
		if err := p.AwaitNode(p.ctx, node, func(n control.Node) bool { return n.State == orbit.Ready }); err != nil {
			return err
		}
	}
	p.say("%s; all four nodes are ready", what)
	return nil
}

// endPair counts what the processes have written. Every member has begun once, because no node was given up.
func (p *play) endPair() error {
	n, err := p.count()
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "orchestrator: control processes 2, jobs %d, members %d, begun again %d, lost %d, doubled %d\n",
		len(p.jobs), n.members, n.begun-n.members, n.lost, n.doubled)
	if n.lost+n.doubled > 0 {
		return errors.New("members were lost or doubled")
	}
	return nil
}
