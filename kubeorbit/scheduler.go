package kubeorbit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
)

// Scheduler places the pods of a cluster that name it in spec.schedulerName. It is a struct literal; set the fields
// before Run.
//
// The API server is the truth. Run makes a ledger of its own, fills it with what the API server says, and keeps it so:
// each object is compared with its record whenever either changes, and all of them from time to time. The engines plan
// and commit on the ledger; what they have placed is bound, and what they have evicted is deleted. If a process ends,
// another one starts from the API server, and nothing is lost but decisions that were not bound yet.
//
//	API server ─► mirror ─► ledger ◄─ engines
//	     ▲                    │
//	     └─ binds, deletions, conditions
type Scheduler struct {
	// Client is the client of the API server. Required. Its limit of requests bounds how fast pods are bound.
	Client kubernetes.Interface
	// Name is the spec.schedulerName of the pods that the scheduler places; default "orbit".
	Name string
	// Population returns the engines that plan on the ledger; nil: [Population]. Classes are those that [SpecOf] says:
	// BestEffort for pods that never preempt, GangClass for members of gangs, LatencySensitive for all others.
	Population func(ledger orbit.Ledger) *orbit.Population
	// EngineOf returns the name of the engine to which a pod is assigned, given the labels of its namespace; empty: the
	// engine that claims its class. It is called each time that a pod is submitted. Nil: every pod is claimed.
	EngineOf func(pod *corev1.Pod, namespace labels.Set) string
	// Queues are the queues that pods may name ([QueueLabel]), each after its parent: quotas that lend and borrow, kept by
	// the ledger. Without Population, work is then planned by fair shares (nav.Fair).
	Queues []orbit.Queue
	// Limits are the limits of the ledger; zero fields have its defaults. History and Terminal are what it keeps of the past, and so
	// bound its memory in a cluster that does not grow. IDBytes is always 512.
	Limits orbit.Limits
	// Binders is how many pods are bound at once; default 64.
	Binders int
	// Tries is how many times a bind is tried at one node before the pod is placed anew; default 4.
	Tries int
	// Compare is the time between two comparisons of all objects with their records; default 5 minutes.
	Compare time.Duration
	// OnStart is called in Run when the ledger is filled, before the engines start: for example to serve the live page or
	// metrics on them. Nil: not called.
	OnStart func(ledger *orbit.MemoryLedger, population *orbit.Population)
	// OnStatus is called about once a second while Run runs, also before OnStart: for example to answer health checks. It must
	// not block. Nil: not called.
	OnStatus func(Status)
	// Events takes the events about pods; nil: they are written to the API server.
	Events events.EventRecorder
	// Logger takes what the scheduler has to say; nil: slog.Default().
	Logger *slog.Logger
}

// Run schedules until the context ends, and then returns its error, or until it fails. Of several replicas only one may
// run at a time: elect a leader first. Run may be called again; it then begins with a new ledger.
func (s *Scheduler) Run(ctx context.Context) error {
	if s.Client == nil {
		return errors.New("kubeorbit: a Scheduler needs a Client")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := s.newRun()
	if s.Events == nil {
		broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: s.Client.EventsV1()})
		if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
			return fmt.Errorf("kubeorbit: events: %w", err)
		}
		defer broadcaster.Shutdown()
		r.events = broadcaster.NewRecorder(scheme.Scheme, r.name)
	}
	group, running := errgroup.WithContext(ctx)
	defer func() { // the informers end with the context
		cancel()
		r.mirror.stop()
		_ = group.Wait()
	}()
	group.Go(func() error { return r.attend(running) })
	if err := r.mirror.start(running); err != nil {
		return err
	}
	if err := r.putQueues(running); err != nil {
		return err
	}
	from, err := r.mirror.load(running)
	if err != nil {
		return err
	}
	r.log.Info("kubeorbit: the cluster is read", "nodes", len(r.mirror.nodes.List()), "pods", len(r.mirror.pods.List()), "queues", len(s.Queues), "engines", len(r.population.Engines))
	if s.OnStart != nil {
		s.OnStart(r.ledger, r.population)
	}
	group.Go(func() error { return r.mirror.follow(running) })
	group.Go(func() error { return r.act(running, from) })
	group.Go(func() error { return r.report(running) })
	group.Go(func() error { return r.population.Run(running) })
	return group.Wait()
}

// Population returns the engines of a Scheduler that has none of its own. They are those of nav.Default, which are patient:
// nothing waits for ever beside smaller pods that keep coming. For what fits nowhere they evict pods of lower priority,
// unless it has preemptionPolicy Never.
func Population(ledger orbit.Ledger) *orbit.Population { return population(ledger) }

// population is Population with further wraps.
func population(ledger orbit.Ledger, wrap ...func(orbit.Navigator) orbit.Navigator) *orbit.Population {
	return nav.Default(ledger, append([]func(orbit.Navigator) orbit.Navigator{evicting}, wrap...)...)
}

// evicting wraps a navigator so that it evicts, but for pods that never preempt.
func evicting(n orbit.Navigator) orbit.Navigator {
	return &nav.Preempting{Navigator: starting(n), Never: neverPreempts}
}

// neverPreempts reports whether the pod of a capsule, or a pod of its gang, has preemptionPolicy Never.
func neverPreempts(c *orbit.Capsule) bool {
	return c.Spec.Class == orbit.BestEffort || c.Label(neverLabel) != ""
}

// starting lets the first pod of a group with affinity to itself go to any node, as Kubernetes does. It reserves no room for the
// pods that follow.
func starting(n orbit.Navigator) orbit.Navigator {
	if patient, ok := n.(*nav.Patient); ok {
		if anchor, ok := patient.Navigator.(*nav.Anchor); ok {
			anchor.SelfMatch = true
		}
	}
	return n
}

// Status is what a scheduler says of itself.
type Status struct {
	// Lost is why the API server counts as lost: for more than five seconds each list or each watch of some kind of objects has
	// failed; nil: it is not lost. What has changed since is not known. The scheduler goes on trying, so a restart is no help.
	Lost error
	// Waiting is how many pods wait, by the reason in a word: one of [orbit.WaitKind] for those that the engines plan. The others
	// are not in the ledger: "unsayable" ([Unsayable]), "gang" (of a gang that lacks pods, or its pod group), and "rejected" (by
	// the ledger). Nil: the cluster is not read yet.
	Waiting map[string]int
}

// run is one Run of a Scheduler: its fields with their defaults, and what the parts share.
type run struct {
	*Scheduler
	name       string
	ledger     *orbit.MemoryLedger
	population *orbit.Population
	events     events.EventRecorder
	log        *slog.Logger
	mirror     *mirror
	binder     binder
	// Status.Waiting as of the last look at what waits.
	waiting atomic.Pointer[map[string]int]
}

// newRun returns a run with an empty ledger.
func (s *Scheduler) newRun() *run {
	r := &run{
		Scheduler: s, name: cmp.Or(s.Name, "orbit"), events: s.Events, log: cmp.Or(s.Logger, slog.Default()),
		ledger: &orbit.MemoryLedger{
			Bounds:     s.Limits,
			Dimensions: dimensions,
		},
	}
	r.ledger.Bounds.IDBytes = longestID
	switch {
	case s.Population != nil:
		r.population = s.Population(r.ledger)
	case len(s.Queues) > 0:
		r.population = population(r.ledger, nav.Fairly)
	default:
		r.population = population(r.ledger)
	}
	r.mirror = newMirror(r)
	r.binder = newBinder(r)
	return r
}

// longestID is the most bytes of an id: a namespace of 63, a name of 253, a UID, and what is between them. Label keys have
// up to 317.
const longestID = 512

// now returns the present as an instant of the ledger.
func now() orbit.Instant { return orbit.Instant(time.Now().UnixNano()) }

// propose proposes commitments that were decided on a state.
func (r *run) propose(ctx context.Context, state *orbit.State, do ...orbit.Commitment) error {
	_, err := r.ledger.Propose(ctx, orbit.Proposal{View: state.Revision(), Do: do})
	return err
}
