//go:build peers

package peers

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/hashicorp/nomad/helper/uuid"
	"github.com/hashicorp/nomad/nomad/mock"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/scheduler"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
)

// What a node has and what a task takes, the same for both schedulers. 40 tasks fill the processors of a node; its memory would do for 64.
const (
	nodeCPU, nodeMemory = 4_000, 8 << 10 // MHz or milli-cores, MiB
	taskCPU, taskMemory = 100, 128
)

// scheduled is a cluster with one scheduler, which places one job after another.
type scheduled interface {
	// place submits a job and returns once all its tasks are committed. Job numbers the jobs, and tasks is the number of its tasks.
	place(b *testing.B, job, tasks int)
}

// nomad is Nomad's service scheduler. It packs. For each task it looks at few nodes: about the logarithm of the number of all.
type nomad struct{ *scheduler.Harness }

func newNomad(b *testing.B, nodes int) scheduled {
	n := nomad{scheduler.NewHarness(b)}
	for range nodes {
		node := mock.Node()
		node.NodeResources.Cpu.CpuShares, node.NodeResources.Memory.MemoryMB = nodeCPU, nodeMemory
		node.ReservedResources = nil
		require.NoError(b, node.ComputeClass())
		require.NoError(b, n.State.UpsertNode(structs.MsgTypeTestSetup, n.NextIndex(), node))
	}
	return n
}

func (n nomad) place(b *testing.B, job, tasks int) {
	j := mock.Job()
	j.ID = fmt.Sprint("job-", job)
	group := j.TaskGroups[0]
	group.Count, group.Networks, group.Services, group.EphemeralDisk.SizeMB = tasks, nil, nil, 1
	group.Tasks[0].Services = nil
	group.Tasks[0].Resources = &structs.Resources{CPU: taskCPU, MemoryMB: taskMemory}
	require.NoError(b, n.State.UpsertJob(structs.MsgTypeTestSetup, n.NextIndex(), nil, j))
	eval := &structs.Evaluation{
		Namespace: j.Namespace, ID: uuid.Generate(), Priority: j.Priority, TriggeredBy: structs.EvalTriggerJobRegister,
		JobID: j.ID, Status: structs.EvalStatusPending,
	}
	require.NoError(b, n.State.UpsertEvals(structs.MsgTypeTestSetup, n.NextIndex(), []*structs.Evaluation{eval}))
	n.Plans, n.Evals = nil, nil
	require.NoError(b, n.Process(scheduler.NewServiceScheduler, eval))
	placed := 0
	for _, plan := range n.Plans {
		for _, allocs := range plan.NodeAllocation {
			placed += len(allocs)
		}
	}
	require.Equal(b, tasks, placed)
}

// own is an engine of orbit on a ledger that judges each proposal. It packs like Nomad, but chooses the best of all nodes for each task.
type own struct {
	ledger *orbit.MemoryLedger
	engine *orbit.Engine
}

func newOwn(b *testing.B, nodes int) scheduled {
	o := own{ledger: &orbit.MemoryLedger{}}
	o.engine = &orbit.Engine{Name: "services", Ledger: o.ledger, Navigator: &nav.Services{Placement: &place.Indexed{Score: score.MostAllocated{}}}}
	for i := range nodes {
		o.commit(b, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("node-", i)), Capacity: orbit.Resources{orbit.CPU: nodeCPU, orbit.Memory: nodeMemory}}})
	}
	return o
}

func (o own) commit(b *testing.B, do ...orbit.Commitment) {
	_, err := o.ledger.Propose(context.Background(), orbit.Proposal{Do: do})
	require.NoError(b, err)
}

func (o own) place(b *testing.B, job, tasks int) {
	ids := make([]orbit.CapsuleID, tasks)
	for i := range ids {
		ids[i] = orbit.CapsuleID(fmt.Sprintf("job-%d/%d", job, i))
	}
	spec := &orbit.Spec{Module: fmt.Sprint("job-", job), Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: taskCPU, orbit.Memory: taskMemory}}}
	o.commit(b, orbit.Submit{IDs: ids, Spec: spec})
	for left := tasks; left > 0; {
		round := o.engine.Pass(context.Background())
		require.Empty(b, round.Errors)
		require.NotZero(b, round.Committed)
		left -= round.Committed
	}
}

// BenchmarkJobs measures how many tasks each scheduler places in a second. The two take turns after every 100 tasks: each
// places every job once, on nodes of its own. Each job has a spec of its own. Before the measurement each scheduler places a job of one task. 1,000 nodes then have
// room for 39 jobs of 1,000 tasks; with a longer -benchtime the benchmark fails.
func BenchmarkJobs(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000} {
		for _, tasks := range []int{1, 10, 1_000} {
			b.Run(fmt.Sprintf("nodes=%d/tasks=%d", nodes, tasks), func(b *testing.B) {
				theirs, ours := newNomad(b, nodes), newOwn(b, nodes)
				var took [2]time.Duration
				theirs.place(b, -1, 1)
				ours.place(b, -1, 1)
				jobs, block := 0, max(1, 100/tasks)
				for b.Loop() {
					for i, s := range []scheduled{theirs, ours} {
						runtime.GC() // neither pays for the garbage of the other
						begin := time.Now()
						for job := range block {
							s.place(b, jobs+job, tasks)
						}
						took[i] += time.Since(begin)
					}
					jobs += block
				}
				placed := float64(jobs * tasks)
				b.ReportMetric(placed/took[0].Seconds(), "nomad-placed/s")
				b.ReportMetric(placed/took[1].Seconds(), "orbit-placed/s")
				b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "times")
			})
		}
	}
}
