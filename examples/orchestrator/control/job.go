package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent/process"
	"github.com/orbitsched/orbit/rollout"
)

// Kind is the kind of a job.
type Kind string

// The kinds of jobs.
const (
	// Service has Count members that run until the job is deleted.
	Service Kind = "service"
	// Batch has Count members, each of which runs until it is done.
	Batch Kind = "batch"
	// Gang has Count members that start together, in one domain of Level if that is set, and run until they are done.
	Gang Kind = "gang"
)

// Job says what to run. All of it is in one mark of the ledger, so a job is changed by compare-and-swap and survives
// the process.
type Job struct {
	// Name is the name; members are called name-0, name-1 and so on.
	Name string `json:"name"`
	// Kind is the kind.
	Kind Kind `json:"kind"`
	// Count is how many members there are.
	Count int `json:"count"`
	// Run is the program and its arguments.
	Run []string `json:"run"`
	// CPU is the CPU that a member takes, in thousandths of a core.
	CPU int64 `json:"cpu"`
	// MemoryMB is the memory that a member takes, in MiB.
	MemoryMB int64 `json:"memoryMB,omitempty"`
	// Priority decides which work makes way: a service and a gang evict work of lower priority.
	Priority int32 `json:"priority,omitempty"`
	// Queue is the queue that the members are charged to; empty: none. It must exist.
	Queue string `json:"queue,omitempty"`
	// Missing is how many members of a service may be missing through a rollout, a drain or an eviction; default 1, and 0
	// with a Surge.
	Missing int `json:"missing,omitempty"`
	// Surge is how many members more than Count a service may have during a rollout.
	Surge int `json:"surge,omitempty"`
	// Ready says that a member serves once it has made the file that ORBIT_READY names; false: it serves as soon as it
	// runs.
	Ready bool `json:"ready,omitempty"`
	// Level is a label key: all members of a gang run on nodes with the same value of the label; empty: anywhere.
	Level string `json:"level,omitempty"`
	// Generation counts the versions of the program. The control process sets it.
	Generation int `json:"generation,omitempty"`
	// Submitted is how many members of a batch or a gang were submitted so far; those that are no longer in the ledger
	// are done. The control process sets it.
	Submitted int `json:"submitted,omitempty"`
}

var goodName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

// check returns what is wrong with a job.
func (j *Job) check() error {
	var wrong []error
	note := func(bad bool, what string) {
		if bad {
			wrong = append(wrong, errors.New(what))
		}
	}
	note(!goodName.MatchString(j.Name), "name must be a letter and at most 62 more letters, digits and hyphens, all lower case")
	note(j.Kind != Service && j.Kind != Batch && j.Kind != Gang, "kind must be service, batch or gang")
	note(j.Count < 0 || j.Count > 10_000, "count must be 0 to 10000")
	note(j.Count == 0 && j.Kind == Gang, "a gang needs a count")
	note(len(j.Run) == 0, "run must name a program")
	note(j.CPU <= 0 || j.CPU > 1<<20, "cpu must be at least 1, in thousandths of a core")
	note(j.MemoryMB < 0 || j.MemoryMB > 1<<30, "memoryMB must not be negative")
	note(j.Missing < 0 || j.Missing > 10_000, "missing must be 0 to 10000")
	note(j.Surge < 0 || j.Surge > 10_000, "surge must be 0 to 10000")
	note(j.Queue != "" && !goodName.MatchString(j.Queue), "queue must be like a name")
	note(j.Level != "" && j.Kind != Gang, "level is for gangs")
	if len(wrong) > 0 {
		return fmt.Errorf("job %.70q: %w: %w", j.Name, orbit.ErrInvalid, errors.Join(wrong...))
	}
	return nil
}

// spec returns the ledger's spec of a member.
func (j *Job) spec() *orbit.Spec {
	class := map[Kind]orbit.AppClass{Service: orbit.LatencySensitive, Batch: orbit.Batch, Gang: orbit.GangClass}[j.Kind]
	return &orbit.Spec{
		Module: j.Name, Class: class, Priority: j.Priority, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: j.CPU, orbit.Memory: j.MemoryMB << 20}},
		Queue:   orbit.QueueID(j.Queue),
		Movable: j.Kind != Service, // a service has a budget, which permits moves
	}
}

// Labels of capsules.
const (
	labelJob = "job"
)

// labels returns the labels of a member: the facts that the agent and a later control process need.
func (j *Job) labels() map[string]string {
	run, _ := json.Marshal(j.Run) // strings can be written
	l := map[string]string{
		labelJob: j.Name, process.LabelRun: string(run),
	}
	if j.Kind == Service {
		l[process.LabelKeep] = "yes"
	}
	if j.Ready {
		l[process.LabelReady] = "file"
	}
	return l
}

// member is the id of member i.
func (j *Job) member(i int) orbit.CapsuleID { return orbit.CapsuleID(fmt.Sprintf("%s-%d", j.Name, i)) }

// service returns what a service wants, which package rollout keeps.
func (j *Job) service() *rollout.Service {
	return &rollout.Service{
		Name: j.Name, Count: j.Count, Spec: j.spec(), Version: strconv.Itoa(j.Generation), Labels: j.labels(),
		Missing: j.Missing, Surge: j.Surge,
	}
}

// same reports whether members of two versions are alike, so that no member has to be replaced.
func (j *Job) same(o *Job) bool {
	a, b := *j, *o
	for _, v := range []*Job{&a, &b} {
		v.Count, v.Missing, v.Surge, v.Generation, v.Submitted, v.Run = 0, 0, 0, 0, 0, nil
	}
	x, _ := json.Marshal([]any{a, j.Run})
	y, _ := json.Marshal([]any{b, o.Run})
	return string(x) == string(y)
}

// Keys of marks.
const (
	keyJob   = "job/"
	keyDrain = "drain/"
)
