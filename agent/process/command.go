//go:build unix

package process

import (
	"encoding/json"
	"fmt"

	"github.com/orbitsched/orbit/agent"
)

// Command is the process of a capsule.
type Command struct {
	// Args are the program and its arguments.
	Args []string `json:"args"`
	// Env is added to the environment of the agent, each as "KEY=value". The Runtime adds ORBIT_CAPSULE, ORBIT_NODE and
	// ORBIT_GANG, the ids of the capsule, its node and its gang, and ORBIT_READY (see SaysReady).
	Env []string `json:"env,omitempty"`
	// Dir is the folder in which the process runs; empty: a folder of the instance, which is removed with it.
	Dir string `json:"dir,omitempty"`
	// Keeps says that the process should never end. If it ends, it has failed, even with exit code 0. If Keeps is false, a
	// process that ends with exit code 0 is done.
	Keeps bool `json:"keeps,omitempty"`
	// SaysReady says that the process serves once it has made the file that ORBIT_READY names. False: it serves as soon
	// as it runs.
	SaysReady bool `json:"saysReady,omitempty"`
}

// The labels of a capsule that [FromLabels] reads.
const (
	// LabelRun is Command.Args, a JSON array of strings. Required.
	LabelRun = "run"
	// LabelKeep, if there is one with any value, sets Command.Keeps.
	LabelKeep = "keep"
	// LabelReady, if there is one with any value, sets Command.SaysReady.
	LabelReady = "ready"
)

// FromLabels returns the command that the capsule's labels [LabelRun], [LabelKeep] and [LabelReady] say.
func FromLabels(task agent.Task) (c Command, err error) {
	run := task.Labels[LabelRun]
	if err := json.Unmarshal([]byte(run), &c.Args); err != nil || len(c.Args) == 0 {
		return c, fmt.Errorf("label %q of capsule %q is %q; it must be a JSON array of strings, the program and its arguments", LabelRun, task.Capsule, run)
	}
	_, c.Keeps = task.Labels[LabelKeep]
	_, c.SaysReady = task.Labels[LabelReady]
	return c, nil
}
