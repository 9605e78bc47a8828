package kubeorbit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const configured = `
apiVersion: kubeorbit.dev/v1alpha1
kind: Configuration
engines:
- {name: nightly, plans: batch, pods: {matchLabels: {tier: nightly}}, neverPreempts: true}
- {name: rest, plans: services, namespaces: {matchLabels: {kubernetes.io/metadata.name: default}}}
`

func TestConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, err := ReadConfiguration([]byte(configured))
		require.NoError(t, err)
		c := newCluster(t, "a")
		c.schedule = &Scheduler{}
		require.NoError(t, file.Configure(c.schedule))
		nightly := podFrom(t, "metadata: {name: nightly, labels: {tier: nightly}}\nspec: {priority: 10, containers: [{name: m, resources: {requests: {cpu: '4'}}}]}")
		c.add(named(podFrom(t, small), 4)...)
		c.run()
		c.until("the small pods are bound", func() bool { return c.bound("small") == 4 })
		c.add(nightly)
		c.pass(60e9)
		require.Zero(t, c.bound("nightly"), "its engine preempts nobody")
		state, err := c.ledger.Snapshot(t.Context())
		require.NoError(t, err)
		require.Equal(t, "nightly", state.Capsule(capsuleOf(c.pod("nightly"))).Owner())
		require.Equal(t, "rest", state.Capsule(capsuleOf(c.pod("small-0"))).Owner())
		c.add(podFrom(t, big))
		c.until("another engine preempts", func() bool { return c.bound("big") == 1 })
		c.kill()
	})
}

// Two teams share a node. One borrows all of it, and gives back what the other is entitled to.
func TestQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, err := ReadConfiguration([]byte(`
apiVersion: kubeorbit.dev/v1alpha1
kind: Configuration
queues:
- {name: company, nominal: {cpu: 0}}
- {name: red, parent: company, nominal: {cpu: 2}}
- {name: blue, parent: company, nominal: {cpu: 2}}
`))
		require.NoError(t, err)
		c := newCluster(t, "a")
		c.addNode("b")
		c.schedule = &Scheduler{}
		require.NoError(t, file.Configure(c.schedule))
		of := func(team string, label string) *corev1.Pod {
			p := podFrom(t, strings.Replace(small, "name: small", "name: "+team, 1))
			p.Labels[label] = team
			return p
		}
		c.add(named(of("red", QueueLabel), 6)...)
		c.run()
		c.until("red borrows what blue leaves", func() bool { return c.bound("red") == 4 })
		c.pass(20e9)
		require.Equal(t, 4, c.bound("red"), "there are eight cores, and a quota of four")
		c.add(named(of("blue", KueueLabel), 3)...)
		c.until("blue takes back its own", func() bool { return c.bound("blue") == 2 && c.bound("red") == 2 })
		c.pass(60e9)
		require.Len(t, c.evicts, 2)
		c.check()
		c.add(of("green", QueueLabel))
		c.pass(5e9)
		require.True(t, saysWhy(c.pod("green"), `there is no queue "green"`))
		c.kill()
	})
}

// For a pod with preemptionPolicy Never nothing is evicted, whatever its priority. The same holds for a gang with such a pod; without the
// policy that gang evicts.
func TestNeverPreempts(t *testing.T) {
	gang := strings.Replace(gangPod, "spec: {", "spec: {priority: 10, ", 1)
	for name, c := range map[string]struct {
		pod   string
		pods  int
		never []int // the pods that have the policy
		bound int
	}{
		"alone":             {big, 1, []int{0}, 0},
		"gang":              {gang, 4, []int{2}, 0},
		"gang that does it": {gang, 4, nil, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t, "a", "b")
				w.add(named(podFrom(t, small), 8)...)
				w.run()
				w.until("the small pods are bound", func() bool { return w.bound("small") == 8 })
				pods := named(podFrom(t, c.pod), c.pods)
				for _, i := range c.never {
					pods[i].Spec.PreemptionPolicy = ptr(corev1.PreemptNever)
				}
				w.add(pods...)
				w.pass(120e9)
				require.Equal(t, c.bound, w.bound(podFrom(t, c.pod).Name))
				require.Equal(t, c.bound == 0, len(w.evicts) == 0)
				w.kill()
			})
		})
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	for text, why := range map[string]string{
		"apiVersion: v1\nkind: Configuration":                                      "apiVersion",
		strings.Replace(configured, "neverPreempts", "neverPreempt", 1):            "neverPreempt",
		strings.Replace(configured, "name: rest", "name: gangs", 1):                "another engine has it",
		strings.Replace(configured, "plans: batch", "plans: all", 1):               "plans",
		strings.Replace(configured, "{tier: nightly}", "{tier: 'not a value'}", 1): "nightly",
	} {
		_, err := ReadConfiguration([]byte(text))
		require.ErrorContains(t, err, why)
	}
}

// The role of config/base allows every request that the scheduler makes, and no other verb.
func TestRoleAllowsWhatIsDone(t *testing.T) {
	allowed := map[string]bool{}
	text, err := os.ReadFile(filepath.Join("config", "base", "account.yaml"))
	require.NoError(t, err)
	for _, part := range strings.Split(string(text), "\n---\n") {
		var role struct {
			Kind  string
			Rules []struct{ APIGroups, Resources, Verbs []string }
		}
		require.NoError(t, yaml.Unmarshal([]byte(part), &role))
		for _, r := range role.Rules {
			if role.Kind != "ClusterRole" {
				continue
			}
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					allowed[verb+" "+r.APIGroups[0]+"/"+resource] = false
				}
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		c.serveGroups()
		c.add(c.podGroup("group", 2))
		c.add(named(podFrom(t, small), 4)...)
		failed := false
		c.set(func(verb, pod string, after bool) error {
			if verb == "bind" && pod == "small-2" && !failed {
				failed = true
				return os.ErrDeadlineExceeded
			}
			return nil
		})
		c.ClearActions()
		c.run()
		c.until("the small pods are bound", func() bool { return c.bound("small") == 4 })
		c.pass(5e9)
		c.add(podFrom(t, big))
		c.until("the urgent pod is bound", func() bool { return c.bound("big") == 1 })
		for _, a := range c.Actions() {
			resource := a.GetResource().Resource
			if a.GetSubresource() != "" {
				resource += "/" + a.GetSubresource()
			}
			key := a.GetVerb() + " " + a.GetResource().Group + "/" + resource
			if a.GetVerb() == "create" && resource == "pods" || a.GetVerb() == "get" && resource == "resource" { // the test, and discovery
				continue
			}
			_, ok := allowed[key]
			require.True(t, ok, "the role does not allow: %s", key)
			allowed[key] = true
		}
		c.kill()
	})
}
