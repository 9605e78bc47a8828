//go:build unix

package process_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/orbitsched/orbit/agent"
	"github.com/orbitsched/orbit/agent/process"
)

// A main function calls [process.Init] first, makes a Runtime and gives it to an [agent.Agent], which calls the methods
// that are called here by hand.
func Example() {
	dir, _ := os.MkdirTemp("", "node")
	defer os.RemoveAll(dir)
	runtime := &process.Runtime{Dir: dir, Node: "node-a"}
	if err := runtime.Open(); err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	_ = runtime.Extend(ctx, time.Now().Add(time.Minute)) // the agent does so after each report that was accepted
	_ = runtime.Start(ctx, agent.Task{
		Instance: agent.Instance{Capsule: "sum-0", Since: 1},
		Labels:   map[string]string{process.LabelRun: `["sh", "-c", "expr 1 + 2"]`},
	})
	for {
		list, _ := runtime.List(ctx)
		if len(list) == 1 && list[0].Phase == agent.Done {
			break
		}
		time.Sleep(time.Millisecond)
	}
	printed, _ := os.ReadFile(dir + "/run/sum-0@1/log")
	fmt.Printf("%s is done and has printed %s", "sum-0", printed)
	// Output: sum-0 is done and has printed 3
}
