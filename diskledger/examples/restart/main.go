// Restart: a ledger in a folder survives its process. A child process runs two engines that place capsules on 50 nodes, and is
// killed with SIGKILL at random times, again and again, each time in the middle of its work: a write may be half done, and an
// answer on its way. What the child was told is committed must be there for the next one, and nothing may be placed twice.
// The next child opens the same folder and continues. The parent counts.
//
//	cd diskledger && go run ./examples/restart
//
// The child reports every placement to the parent after the ledger has committed it. The output has a line for each life of the child. Found is the number of placements in the ledger when the child
// opened it, placed is the number of placements that the child has reported. In the end the parent opens the folder
// itself and compares: lost are placements that were reported and that the ledger does not have on the reported node;
// doubled are capsules that were reported on two nodes.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/internal/program"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/nav"
)

//go:embed main.go
var source string // the program prints its first paragraph first

func main() {
	dir := flag.String("dir", "", "folder of the ledger; default: a temporary one, which is removed")
	capsules := flag.Int("capsules", 2000, "number of capsules to place; at least 16")
	kills := flag.Int("kills", 4, "how often the child is killed")
	life := flag.String("child", "", "used by the program itself")
	flag.Parse()
	var err error
	switch {
	case flag.NArg() > 0 || *capsules < 16 || *kills < 0:
		flag.Usage()
		os.Exit(2)
	case *life != "":
		err = live(*dir, *capsules)
	default:
		fmt.Println(program.Opening(source))
		err = tell(*dir, *capsules, *kills)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "restart:", err)
		os.Exit(1)
	}
}

// live is one life of the child: it opens the ledger, and two engines place capsules until none is pending.
func live(dir string, capsules int) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ledger, err := diskledger.Open(dir, diskledger.Options{CheckpointEvery: 1500})
	if err != nil {
		return err
	}
	state, err := ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	if state.Revision() == 0 {
		if _, err := ledger.Propose(ctx, cluster(capsules)); err != nil {
			return err
		}
	}
	fmt.Println("found", state.CapsuleCount()-state.PendingCount())
	var engines []*orbit.Engine
	for _, module := range []string{"web", "api"} {
		engines = append(engines, &orbit.Engine{Name: module, Ledger: ledger, MaxPlan: 4,
			Navigator: only{&nav.Services{}, module}})
	}
	go report(ctx, ledger, state.Revision(), stop)
	err = (&orbit.Population{Engines: engines}).Run(ctx)
	return errors.Join(err, ledger.Close())
}

// only is a navigator for one module.
type only struct {
	orbit.Navigator
	module string
}

// Claims reports whether module is the navigator's one module.
func (o only) Claims(module string, _ orbit.AppClass) bool { return module == o.module }

// cluster is the first proposal: nodes, and capsules of two modules.
func cluster(capsules int) orbit.Proposal {
	var p orbit.Proposal
	for i := range 50 {
		p.Do = append(p.Do, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("node-", i)), Capacity: orbit.Resources{orbit.CPU: int64(capsules)}}})
	}
	for _, module := range []string{"web", "api"} {
		spec := &orbit.Spec{Module: module, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 10}}}
		var ids []orbit.CapsuleID
		for i := range capsules / 2 {
			ids = append(ids, orbit.CapsuleID(fmt.Sprint(module, "-", i)))
		}
		p.Do = append(p.Do, orbit.Submit{IDs: ids, Spec: spec})
	}
	return p
}

// report prints each placement that appears in the ledger's history, and stops the engines when no capsule is pending.
func report(ctx context.Context, ledger orbit.Ledger, after orbit.Revision, stop func()) {
	for changes, err := range orbit.Follow(ctx, ledger, after) {
		if err != nil {
			fmt.Println("error", err)
			stop()
			return
		}
		for _, c := range changes {
			if place, ok := c.Do.(orbit.Place); ok {
				fmt.Println("placed", place.Capsule, place.Node)
			}
		}
		if state, err := ledger.Snapshot(ctx); err == nil && state.PendingCount() == 0 {
			stop()
			return
		}
	}
}

// tell starts children, kills them, and compares in the end.
func tell(dir string, capsules, kills int) error {
	if dir == "" {
		made, err := os.MkdirTemp("", "restart")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(made) }()
		dir = filepath.Join(made, "ledger")
	}
	told := map[orbit.CapsuleID]orbit.NodeID{}
	doubled, killings := 0, 0
	for lifetime := 1; ; lifetime++ {
		killed, err := child(dir, capsules, lifetime, lifetime <= kills, func(id orbit.CapsuleID, on orbit.NodeID) {
			if before, ok := told[id]; ok && before != on {
				doubled++
			}
			told[id] = on
		})
		if err != nil {
			return err
		}
		if !killed {
			break
		}
		killings++
	}
	log, err := diskledger.OpenLog(dir, diskledger.LogOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	found, err := logledger.Inspect(context.Background(), log, nil) // verifies the state, too
	if err = errors.Join(err, log.Close()); err != nil {
		return err
	}
	lost := 0
	for id, on := range told {
		if c := found.State.Capsule(id); c == nil || c.Node != on {
			lost++
		}
	}
	fmt.Printf("restart: placed %d of %d, lost %d, doubled %d, kills %d, verify: ok\n",
		found.State.CapsuleCount()-found.State.PendingCount(), found.State.CapsuleCount(), lost, doubled, killings)
	return nil
}

// child runs one life of the child, and kills it after a part of its work. It reports whether it was killed.
func child(dir string, capsules, lifetime int, kill bool, placed func(orbit.CapsuleID, orbit.NodeID)) (killed bool, err error) {
	cmd := exec.Command(os.Args[0], "-child", "yes", "-dir", dir, "-capsules", strconv.Itoa(capsules))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	n, until, found := 0, rand.IntN(capsules/8)+1, "0"
	start := time.Now()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch words := strings.Fields(lines.Text()); {
		case len(words) == 2 && words[0] == "found":
			found = words[1]
		case len(words) == 3 && words[0] == "placed":
			placed(orbit.CapsuleID(words[1]), orbit.NodeID(words[2]))
			if n++; kill && n == until {
				killed = true
				_ = cmd.Process.Kill()
			}
		default:
			return false, errors.New(lines.Text())
		}
	}
	err = cmd.Wait()
	end := "ended by itself"
	if killed {
		err, end = nil, "killed"
	}
	fmt.Printf("life %d: found %s placed, placed %d more in %v, %s\n", lifetime, found, n, time.Since(start).Round(time.Millisecond), end)
	return killed, err
}
