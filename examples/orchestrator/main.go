// Orchestrator: a small but real orchestrator around orbit, a control process with an HTTP API and an agent on each node that
// runs processes. Deciding where work runs is half of it. The other half: a process must not run twice when its node is cut
// off and comes back, when control is killed in the middle of a rollout, or when an agent is replaced; and nothing may be
// lost. The processes of the jobs count that themselves. docs/orchestrator.md leads through the program.
//
//	cd examples/orchestrator
//	go run . control -ledger file:/tmp/control
//	go run . agent -dir /tmp/node-a -node node-a -control http://127.0.0.1:7070
//	curl -X PUT 127.0.0.1:7070/jobs/web -d '{"kind": "service", "count": 3, "cpu": 500, "run": ["sleep", "1000"]}'
//
// With -demo it plays everything through on this machine in half a minute: services, batch, gangs and quotas, a
// rollout, a drain, evictions, a control process that is killed twice with SIGKILL, an agent that is replaced, and an
// agent that is suspended until its node is lost. Each process of a job writes down when it begins and ends, and holds
// a lock meanwhile. So the processes themselves count whether any of them ran twice.
//
//	go run . -demo
//	go run . -demo -ledger etcd:http://127.0.0.1:2379        # the same on an etcd that is empty
//	go run . -demo -ledger postgres://orbit@127.0.0.1/orbit  # the same on a Postgres database
//
// With -pair it plays with two control processes, of which one is killed and the other one suspended. It starts an etcd for
// that, unless it is given a ledger:
//
//	go run . -pair
//	go run . -pair -ledger postgres://orbit@127.0.0.1/orbit
//
// How to read it: a line for each event, with the seconds since the start. In the last line, lost counts members of
// jobs that do not run in the end or were never done; doubled counts processes that found another process of the same
// member at work.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"net"
	neturl "net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
	"github.com/orbitsched/orbit/agent/process"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	copies "github.com/orbitsched/orbit/etcdledger/itest/process"
	"github.com/orbitsched/orbit/examples/orchestrator/control"
	"github.com/orbitsched/orbit/examples/orchestrator/demo"
	"github.com/orbitsched/orbit/internal/program"
)

//go:embed main.go
var source string // the demonstrations print its first paragraph first

func main() {
	process.Init()                                                   // the supervisors of members are this program, too
	copies.Main(map[string]copies.Role{cluster.Role: cluster.Serve}) // and the etcd of -pair
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) { // the package flag has printed the help
		fmt.Fprintln(os.Stderr, "orchestrator:", err)
		os.Exit(1)
	}
}

const usage = `usage: orchestrator control|agent [flags], or orchestrator -demo|-pair [flags of control]; -h after either lists its flags`

// run does what the arguments say.
func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	switch args[0] {
	case "control":
		return runControl(ctx, args[1:])
	case "agent":
		return runAgent(ctx, args[1:])
	case "work": // called by the demo's jobs
		return demo.Work(ctx, args[1:])
	case "-h", "-help", "--help":
		fmt.Println(usage)
		return nil
	case "-demo", "--demo":
		fmt.Println(program.Opening(source))
		return demo.Play(ctx, os.Stdout, args[1:]...)
	case "-pair", "--pair":
		fmt.Println(program.Opening(source))
		return demo.PlayPair(ctx, os.Stdout, args[1:]...)
	}
	return errors.New(usage)
}

// runControl is the control process.
func runControl(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("control", flag.ContinueOnError)
	ledger := flags.String("ledger", "", "where the ledger is: file:FOLDER, etcd:ENDPOINT,ENDPOINT or a URL postgres://...; required")
	listen := flags.String("listen", "127.0.0.1:7070", "address of the API; it asks for no credentials")
	peers := flags.String("peers", "", "URLs of the other control processes on the same ledger, separated by commas; its own may be among them")
	ttl := flags.Duration("ttl", 15*time.Second, "how long after its last report a node gets work, and how long after that it is lost")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := control.Open(ctx, control.Config{Ledger: *ledger, Peers: list(*peers, ""), TTL: *ttl})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "control: listening on http://%s\n", listener.Addr())
	return c.Run(ctx, listener)
}

// list returns the URLs in a text, in which commas separate them, each with a path behind it.
func list(text, path string) (out []string) {
	for url := range strings.SplitSeq(text, ",") {
		if url = strings.TrimSuffix(strings.TrimSpace(url), "/"); url != "" {
			out = append(out, url+path)
		}
	}
	return out
}

// runAgent is the agent of a node. When the agent ends, its processes run on; another agent with the same folder takes
// them over.
func runAgent(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	dir := flags.String("dir", "", "folder of the node; required")
	id := flags.String("node", "", "id of the node; required")
	urls := flags.String("control", "http://127.0.0.1:7070", "URLs of the control processes, separated by commas")
	cpu := flags.Int64("cpu", 4000, "thousandths of a core that the node has")
	memory := flags.Int64("memory", 8192, "MiB of memory that the node has")
	labels := flags.String("labels", "", "labels of the node, as in zone=a,rack=a1")
	every := flags.Duration("every", 3*time.Second, "how often the agent reports; several reports should fit in the control process's -ttl")
	stopping := flags.Duration("stopping", 10*time.Second, "how long everything may take to stop; a process gets SIGKILL after half of it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" || *id == "" {
		return errors.New("agent needs -dir and -node")
	}
	n := orbit.Node{ID: orbit.NodeID(*id), Capacity: orbit.Resources{orbit.CPU: *cpu, orbit.Memory: *memory << 20}, Labels: map[string]string{}}
	for label := range strings.SplitSeq(*labels, ",") {
		if key, value, ok := strings.Cut(label, "="); ok {
			n.Labels[key] = value
		}
	}
	processes := &process.Runtime{Dir: *dir, Node: n.ID, Grace: *stopping / 2}
	if err := processes.Open(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "agent: node %s reports to %s\n", *id, *urls)
	return (&agent.Agent{
		Control: &agent.Client{URLs: list(*urls, "/agent")}, Runtime: processes, Machine: agent.ThisMachine() + " " + neturl.PathEscape(processes.Dir), Node: n, Every: *every, Stopping: *stopping, Poll: min(*every, time.Second) / 4,
	}).Run(ctx)
}
