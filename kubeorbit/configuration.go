package kubeorbit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// ConfigurationVersion is the apiVersion of a [Configuration].
const ConfigurationVersion = "kubeorbit.dev/v1alpha1"

// Configuration is a file: which queues there are, which engines beside those of [Population], and which pods they place.
//
//	apiVersion: kubeorbit.dev/v1alpha1
//	kind: Configuration
//	engines:
//	- name: nightly
//	  plans: batch
//	  pods: {matchLabels: {tier: nightly}}
//	  neverPreempts: true
//	queues: # a pod names its queue in the label kubeorbit.dev/queue
//	- name: all
//	- name: research
//	  parent: all
//	  nominal: {cpu: 10, nvidia.com/gpu: 8} # what is not named here or in another queue of the tree is not limited
//	  borrow: {cpu: 4}
type Configuration struct {
	// APIVersion is ConfigurationVersion.
	APIVersion string `json:"apiVersion"`
	// Kind is "Configuration".
	Kind string `json:"kind"`
	// SchedulerName is the [Scheduler].Name; empty: "orbit".
	SchedulerName string `json:"schedulerName,omitempty"`
	// Engines are further engines. A pod belongs to the first that selects it; to those of Population if none does.
	Engines []EngineConfiguration `json:"engines,omitempty"`
	// Queues are the queues that pods may name, each after its parent.
	Queues []QueueConfiguration `json:"queues,omitempty"`
}

// EngineConfiguration is an engine, and which pods it places.
type EngineConfiguration struct {
	// Name is the name of the engine. The names services, batch, gangs and kubernetes are taken.
	Name string `json:"name"`
	// Plans names the engine of nav.Default whose way of planning this one has: services spreads and places fast, batch packs
	// for throughput, gangs places gangs. An engine of gangs takes pods of gangs only, and the others take no such pods.
	Plans string `json:"plans"`
	// Pods selects the pods by their labels; without it the engine takes all pods of Namespaces.
	Pods *metav1.LabelSelector `json:"pods,omitempty"`
	// Namespaces selects namespaces by their labels; without it the engine takes pods of all.
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`
	// NeverPreempts says that nothing is evicted for the pods of the engine.
	NeverPreempts bool `json:"neverPreempts,omitempty"`
}

// ReadConfiguration reads a configuration from YAML or JSON. Unknown fields are errors.
func ReadConfiguration(text []byte) (*Configuration, error) {
	c := &Configuration{}
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		return nil, fmt.Errorf("kubeorbit: configuration: %w", err)
	}
	if c.APIVersion != ConfigurationVersion || c.Kind != "Configuration" {
		return nil, fmt.Errorf("kubeorbit: configuration: apiVersion %q, kind %q: want %s, Configuration", c.APIVersion, c.Kind, ConfigurationVersion)
	}
	return c, c.Configure(&Scheduler{})
}

// taken are the names that no further engine can have.
var taken = []string{"services", "batch", "gangs", foreign}

// rule says which pods an engine places.
type rule struct {
	engine           string
	gangs            bool
	pods, namespaces labels.Selector
}

// selects reports whether the engine places a pod.
func (r *rule) selects(pod *corev1.Pod, namespace labels.Set) bool {
	return r.pods.Matches(labels.Set(pod.Labels)) && r.namespaces.Matches(namespace)
}

// Configure sets the Name, the Queues, the Population and the EngineOf of a scheduler.
func (c *Configuration) Configure(s *Scheduler) error {
	var rules []rule
	names := slices.Clone(taken)
	for i := range c.Engines {
		e := &c.Engines[i]
		switch {
		case e.Name == "" || slices.Contains(names, e.Name):
			return fmt.Errorf("kubeorbit: configuration: engine %d: the name %q is empty, or another engine has it (%s are there already)", i+1, e.Name, strings.Join(taken, ", "))
		case !slices.Contains(taken[:3], e.Plans):
			return fmt.Errorf("kubeorbit: configuration: engine %q: plans %q: want one of %v", e.Name, e.Plans, taken[:3])
		}
		names = append(names, e.Name)
		r := rule{engine: e.Name, gangs: e.Plans == "gangs"}
		for _, from := range []struct {
			selector *metav1.LabelSelector
			to       *labels.Selector
		}{{e.Pods, &r.pods}, {e.Namespaces, &r.namespaces}} {
			if *from.to = labels.Everything(); from.selector == nil {
				continue
			}
			selector, err := metav1.LabelSelectorAsSelector(from.selector)
			if err != nil {
				return fmt.Errorf("kubeorbit: configuration: engine %q: %w", e.Name, err)
			}
			*from.to = selector
		}
		rules = append(rules, r)
	}
	s.Queues = nil
	for i := range c.Queues {
		q, err := c.Queues[i].queue()
		if err != nil {
			return fmt.Errorf("kubeorbit: configuration: queue %q: %w", c.Queues[i].Name, err)
		}
		s.Queues = append(s.Queues, q)
	}
	if err := (&run{Scheduler: s, ledger: &orbit.MemoryLedger{}}).putQueues(context.Background()); err != nil {
		return err
	}
	s.Name, s.Population = c.SchedulerName, c.population
	s.EngineOf = func(pod *corev1.Pod, namespace labels.Set) string {
		for i := range rules {
			if rules[i].gangs == (gangName(pod) != "") && rules[i].selects(pod, namespace) {
				return rules[i].engine
			}
		}
		return ""
	}
	return nil
}

// assigned is a navigator that claims nothing: its engine plans only the pods that are assigned to it.
type assigned struct{ orbit.Navigator }

// Claims implements [orbit.Navigator].
func (assigned) Claims(string, orbit.AppClass) bool { return false }

// population returns the engines of Population and the further ones.
func (c *Configuration) population(ledger orbit.Ledger) *orbit.Population {
	var wrap []func(orbit.Navigator) orbit.Navigator
	if len(c.Queues) > 0 {
		wrap = append(wrap, nav.Fairly)
	}
	all := population(ledger, wrap...)
	for i := range c.Engines {
		e := &c.Engines[i]
		evicts := evicting
		if e.NeverPreempts {
			evicts = starting
		}
		for _, made := range nav.Default(ledger, append([]func(orbit.Navigator) orbit.Navigator{evicts}, wrap...)...).Engines { // navigators of its own
			if made.Name != e.Plans {
				continue
			}
			made.Name, made.Navigator = e.Name, assigned{made.Navigator}
			all.Engines = append(all.Engines, made)
		}
	}
	return all
}
