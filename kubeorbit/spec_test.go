package kubeorbit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// fitRow is a pod that is named p, the nodes, the pods that are there already, and the nodes that take the pod.
type fitRow struct {
	name  string
	pod   string
	nodes []string
	with  []string
	want  string
	// Why Kubernetes, and so Recount, says otherwise; empty: both say the same.
	otherwise string
}

func spec(text string) string { return "{metadata: {name: p}, spec: {" + text + "}}" }

// web is a pod with the label app=web and a spec.
func web(text string) string {
	return "{metadata: {name: p, labels: {app: web}}, spec: {" + text + "}}"
}

// placed is a pod on a node, with labels.
func placed(node, labels string) string {
	return fmt.Sprintf("{metadata: {labels: {%s}}, spec: {nodeName: %s}}", labels, node)
}

func asks(text string) string {
	return spec("containers: [{name: c, resources: {requests: {" + text + "}}}]")
}

const (
	zonal     = "topologyKey: zone"
	ofWeb     = "labelSelector: {matchLabels: {app: web}}"
	ofDB      = "labelSelector: {matchLabels: {app: db}}"
	required  = "requiredDuringSchedulingIgnoredDuringExecution: "
	preferred = "preferredDuringSchedulingIgnoredDuringExecution: "
)

func apart(term string) string {
	return "affinity: {podAntiAffinity: {" + required + "[{" + term + "}]}}"
}

func near(terms ...string) string {
	return "affinity: {podAffinity: {" + required + "[{" + strings.Join(terms, "}, {") + "}]}}"
}

func nodeAffinity(terms string) string {
	return "affinity: {nodeAffinity: {" + required + "{nodeSelectorTerms: [" + terms + "]}}}"
}

func spread(constraints ...string) string {
	return "topologySpreadConstraints: [{" + strings.Join(constraints, "}, {") + "}]"
}

func hostPort(text string) string {
	return "containers: [{name: c, ports: [{containerPort: 1, " + text + "}]}]"
}

const evenly = "maxSkew: 1, whenUnsatisfiable: DoNotSchedule"

var zones = []string{"a1 zone=a", "a2 zone=a", "b1 zone=b", "none"}

var resourceRows = []fitRow{
	{name: "requests that fit", pod: asks("cpu: 4, memory: 8Gi"), nodes: []string{"a", "b +cpu=3", "c +memory=7Gi"}, want: "a"},
	{name: "a request in fractions of a milli-core is rounded up",
		pod: asks("cpu: 1000100u"), nodes: []string{"a +cpu=1", "b +cpu=1001m"}, want: "b"},
	{name: "what others take is not free", pod: asks("cpu: 3950m"), nodes: []string{"a", "b"}, with: []string{placed("a", "app: x")}, want: "b"},
	{name: "ephemeral storage", pod: asks("ephemeral-storage: 1Gi"), nodes: []string{"a", "b +ephemeral-storage=1Gi"}, want: "b"},
	{name: "number of pods", pod: spec(""), nodes: []string{"a +pods=1", "b +pods=0", "c +pods=1"}, with: []string{placed("a", "app: x")}, want: "c"},
	{name: "extended resource", pod: asks("nvidia.com/gpu: 2"), nodes: []string{"a", "b +nvidia.com/gpu=1", "c +nvidia.com/gpu=2"}, want: "c"},
	{name: "extended resource that is no accelerator", pod: asks("example.com/fpga: 2"), nodes: []string{"a +nvidia.com/gpu=2", "b +example.com/fpga=1", "c +example.com/fpga=2"}, want: "c"},
	{name: "accelerators of two makers", pod: asks("amd.com/gpu: 2"), nodes: []string{"a +nvidia.com/gpu=2", "b +amd.com/gpu=2"}, want: "b"},
	{name: "extended resource of zero", pod: asks("nvidia.com/gpu: 0"), nodes: []string{"a"}, want: "a"},
	{name: "extended resource that another takes", pod: asks("example.com/fpga: 2"), nodes: []string{"a +example.com/fpga=2", "b +example.com/fpga=2"},
		with: []string{`{spec: {nodeName: a, containers: [{name: c, resources: {requests: {example.com/fpga: 1}}}]}}`}, want: "b"},
	{name: "accelerator that another takes", pod: asks("nvidia.com/gpu: 2"), nodes: []string{"a +nvidia.com/gpu=2", "b +nvidia.com/gpu=2"},
		with: []string{`{spec: {nodeName: a, containers: [{name: c, resources: {requests: {nvidia.com/gpu: 1}}}]}}`}, want: "b"},
	{name: "hugepages of more bytes than an extra can be", pod: asks("hugepages-1Gi: 600Gi"),
		nodes: []string{"a +hugepages-1Gi=599Gi", "b +hugepages-1Gi=600Gi", "c +hugepages-2Mi=900Gi"}, want: "b"},
	{name: "an init container is the minimum",
		pod:   spec("initContainers: [{name: i, resources: {requests: {cpu: 3}}}], containers: [{name: c, resources: {requests: {cpu: 1}}}]"),
		nodes: []string{"a +cpu=3", "b +cpu=2"}, want: "a"},
	{name: "a sidecar is added",
		pod:   spec("initContainers: [{name: i, restartPolicy: Always, resources: {requests: {cpu: 3}}}], containers: [{name: c, resources: {requests: {cpu: 1}}}]"),
		nodes: []string{"a +cpu=4", "b +cpu=3"}, want: "a"},
	{name: "a sidecar is added to a later init container",
		pod: spec(`initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 1}}}, {name: i, resources: {requests: {cpu: 3}}}],
			containers: [{name: c, resources: {requests: {cpu: 1}}}]`),
		nodes: []string{"a +cpu=4", "b +cpu=3"}, want: "a"},
	{name: "overhead is added",
		pod: spec("overhead: {cpu: 1}, containers: [{name: c, resources: {requests: {cpu: 3}}}]"), nodes: []string{"a +cpu=4", "b +cpu=3"},
		want: "a"},
	{name: "requests of the pod", pod: spec("resources: {requests: {cpu: 3}}, containers: [{name: c, resources: {requests: {cpu: 1}}}]"),
		nodes: []string{"a +cpu=3", "b +cpu=2"}, want: "a"},
	{name: "a pod that is resized takes the larger amount until it is done",
		pod: asks("cpu: 3"), nodes: []string{"a", "b"}, want: "b", with: []string{`
{spec: {nodeName: a, containers: [{name: c, resources: {requests: {cpu: 1}}}]},
 status: {containerStatuses: [{name: c, image: "", imageID: "", ready: true, restartCount: 0, allocatedResources: {cpu: 2}, resources: {requests: {cpu: 2}}}]}}`}},
	{name: "a pod that is to grow takes what it asks for", pod: asks("cpu: 3"), nodes: []string{"a", "b"}, want: "b",
		with: []string{`{spec: {nodeName: a, containers: [{name: c, resources: {requests: {cpu: 2}}}]}, status: {` + has("1") + `}}`}},
	{name: "a pod that can never grow takes what it has", pod: asks("cpu: 3"), nodes: []string{"a", "b"}, want: "a b", with: []string{
		`{spec: {nodeName: a, containers: [{name: c, resources: {requests: {cpu: 9}}}]},
		 status: {conditions: [{type: PodResizePending, status: "True", reason: Infeasible}], ` + has("1") + `}}`}},
	{name: "requests of a pod that is resized as a whole", pod: asks("cpu: 3"), nodes: []string{"a", "b"}, want: "b", with: []string{
		`{spec: {nodeName: a, resources: {requests: {cpu: 1}}, containers: [{name: c}]},
		 status: {allocatedResources: {cpu: 1}, resources: {requests: {cpu: 2}}}}`}},
}

// has is the status of a container that has so many cores.
func has(cpu string) string {
	return `containerStatuses: [{name: c, image: "", imageID: "", ready: true, restartCount: 0, allocatedResources: {cpu: ` + cpu + `}, resources: {requests: {cpu: ` + cpu + `}}}]`
}

var nodeRows = []fitRow{
	{name: "nodeSelector",
		pod: spec("nodeSelector: {disk: ssd, zone: a}"), nodes: []string{"a zone=a", "b zone=a disk=ssd", "c zone=b disk=ssd"}, want: "b"},
	{name: "nodeSelector with an empty value", pod: spec(`nodeSelector: {role: ""}`), nodes: []string{"a role=", "b role=x", "c"}, want: "a"},
	{name: "terms are alternatives, expressions a conjunction",
		pod: spec(nodeAffinity(`{matchExpressions: [{key: zone, operator: In, values: [a, b]}, {key: disk, operator: Exists}]},
			{matchExpressions: [{key: zone, operator: In, values: [c]}]}`)),
		nodes: []string{"a zone=a", "b zone=b disk=", "c zone=c", "d zone=d disk=ssd"}, want: "b c"},
	{name: "NotIn and DoesNotExist",
		pod:   spec(nodeAffinity("{matchExpressions: [{key: zone, operator: NotIn, values: [a]}, {key: disk, operator: DoesNotExist}]}")),
		nodes: []string{"a zone=a", "b zone=b", "c", "d disk=ssd"}, want: "b c"},
	{name: "NotIn with an empty value", pod: spec(nodeAffinity(`{matchExpressions: [{key: zone, operator: NotIn, values: [""]}]}`)),
		nodes: []string{"a zone=", "b zone=b", "c"}, want: "b c"},
	{name: "Gt and Lt",
		pod:   spec(nodeAffinity(`{matchExpressions: [{key: gen, operator: Gt, values: ["5"]}, {key: gen, operator: Lt, values: ["9"]}]}`)),
		nodes: []string{"a gen=5", "b gen=6", "c gen=9", "d gen=six", "e"}, want: "b"},
	{name: "an operand that is no number",
		pod:   spec(nodeAffinity("{matchExpressions: [{key: gen, operator: Gt, values: [x]}]}, {matchExpressions: [{key: zone, operator: Exists}]}")),
		nodes: []string{"a gen=5", "b zone=z"}, want: "b"},
	{name: "an operand that is no label",
		pod: spec(nodeAffinity(`{matchExpressions: [{key: gen, operator: NotIn, values: ["a b"]}]}`)), nodes: []string{"a gen=5", "b"}},
	{name: "matchFields",
		pod: spec(nodeAffinity("{matchFields: [{key: metadata.name, operator: In, values: [b]}]}")), nodes: []string{"a", "b"}, want: "b"},
	{name: "matchFields and matchExpressions",
		pod:   spec(nodeAffinity("{matchFields: [{key: metadata.name, operator: NotIn, values: [b]}], matchExpressions: [{key: zone, operator: Exists}]}")),
		nodes: []string{"a zone=a", "b zone=b", "c"}, want: "a"},
	{name: "an empty term matches nothing",
		pod: spec(nodeAffinity("{}, {matchExpressions: [{key: zone, operator: Exists}]}")), nodes: []string{"a zone=a", "b"}, want: "a"},
	{name: "only empty terms match nothing", pod: spec(nodeAffinity("{}, {}")), nodes: []string{"a", "b"}},
	{name: "nodeSelector and affinity must both match",
		pod:   spec("nodeSelector: {disk: ssd}, " + nodeAffinity("{matchExpressions: [{key: zone, operator: Exists}]}")),
		nodes: []string{"a zone=a", "b disk=ssd", "c zone=a disk=ssd"}, want: "c"},
	{name: "taints", pod: spec(""), nodes: []string{"a !k=v:NoSchedule", "b !k=v:NoExecute", "c !k=v:PreferNoSchedule", "d"}, want: "c d"},
	{name: "tolerations", pod: spec("tolerations: [{key: k, value: v, effect: NoSchedule}, {key: e, operator: Exists}]"),
		nodes: []string{"a !k=v:NoSchedule", "b !k=w:NoSchedule", "c !k=v:NoExecute", "d !e=x:NoExecute !k=v:NoSchedule"}, want: "a d"},
	{name: "all taints of one effect are tolerated", pod: spec("tolerations: [{operator: Exists, effect: NoSchedule}]"),
		nodes: []string{"a !k=v:NoSchedule", "b !k=v:NoExecute", "c cordoned"}, want: "a c"},
	{name: "all taints are tolerated",
		pod: spec("tolerations: [{operator: Exists}]"), nodes: []string{"a !k=v:NoSchedule", "b !k=v:NoExecute cordoned"}, want: "a b"},
	{name: "a taint that is tolerated for some time", pod: spec("tolerations: [{key: k, operator: Exists, effect: NoExecute, tolerationSeconds: 0}]"),
		nodes: []string{"a !k=v:NoExecute"}, want: "a"},
	{name: "unschedulable", pod: spec(""), nodes: []string{"a cordoned", "b"}, want: "b"},
	{name: "unschedulable, as pods of daemon sets tolerate it",
		pod:   spec("tolerations: [{key: node.kubernetes.io/unschedulable, operator: Exists, effect: NoSchedule}]"),
		nodes: []string{"a cordoned", "b cordoned !node.kubernetes.io/unschedulable=:NoSchedule"}, want: "a b"},
	{name: "os", pod: spec("os: {name: linux}"), nodes: []string{"a kubernetes.io/os=linux", "b kubernetes.io/os=windows", "c"}, want: "a c",
		otherwise: "the kubelet refuses the pod, not kube-scheduler"},
	{name: "a runtime class is what the API server has made of it",
		pod: spec(`runtimeClassName: kata, overhead: {cpu: 1}, nodeSelector: {runtime: kata}, tolerations: [{key: kata, operator: Exists}],
			containers: [{name: c, resources: {requests: {cpu: 3}}}]`),
		nodes: []string{"a runtime=kata !kata=:NoSchedule", "b runtime=kata +cpu=3", "c"}, want: "a"},
	{name: "user namespaces and images are left to the kubelet", pod: spec("hostUsers: false, containers: [{name: c, image: nowhere}]"),
		nodes: []string{"a"}, want: "a"},
}

var apartRows = []fitRow{
	{name: "anti-affinity", pod: spec(apart(zonal + ", " + ofWeb)), nodes: zones, with: []string{placed("a1", "app: web")}, want: "b1 none"},
	{name: "anti-affinity of the pods that are there", pod: web(""), nodes: zones,
		with: []string{"{metadata: {labels: {app: db}}, spec: {nodeName: a1, " + apart(zonal+", "+ofWeb) + "}}"}, want: "b1 none"},
	{name: "anti-affinity to its own kind", pod: web(apart("topologyKey: kubernetes.io/hostname, " + ofWeb)), nodes: zones,
		with: []string{placed("a1", "app: web")}, want: "a2 b1 none"},
	{name: "the host name is a label", pod: web(apart("topologyKey: kubernetes.io/hostname, " + ofWeb)),
		nodes: []string{"a kubernetes.io/hostname=h", "b kubernetes.io/hostname=h", "c"}, with: []string{placed("a", "app: web")}, want: "c"},
	{name: "a domain with an empty name",
		pod: web(apart(zonal + ", " + ofWeb)), nodes: []string{"a zone=", "b zone=", "c"}, with: []string{placed("a", "app: web")}, want: "c"},
	{name: "no selector selects nothing", pod: web(apart(zonal)), nodes: zones, with: []string{placed("a1", "app: web")}, want: "a1 a2 b1 none"},
	{name: "an empty selector selects all",
		pod: web(apart(zonal + ", labelSelector: {}")), nodes: zones, with: []string{placed("a1", "")}, want: "b1 none"},
	{name: "another namespace does not count", pod: spec(apart(zonal + ", " + ofWeb)), nodes: zones,
		with: []string{"{metadata: {namespace: other, labels: {app: web}}, spec: {nodeName: a1}}"}, want: "a1 a2 b1 none"},
	{name: "namespaces", pod: spec(apart(zonal + ", namespaces: [other], " + ofWeb)), nodes: zones,
		with: []string{"{metadata: {namespace: other, labels: {app: web}}, spec: {nodeName: a1}}", placed("b1", "app: web")}, want: "b1 none"},
	{name: "an empty namespaceSelector selects all", pod: spec(apart(zonal + ", namespaceSelector: {}, " + ofWeb)), nodes: zones,
		with: []string{"{metadata: {namespace: other, labels: {app: web}}, spec: {nodeName: a1}}"}, want: "b1 none"},
	{name: "namespaceSelector",
		pod:   spec(apart(zonal + ", namespaces: [third], namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: other}}, " + ofWeb)),
		nodes: []string{"a zone=a", "b zone=b", "c zone=c"},
		with: []string{"{metadata: {namespace: other, labels: {app: web}}, spec: {nodeName: a}}",
			"{metadata: {namespace: third, labels: {app: web}}, spec: {nodeName: b}}", placed("c", "app: web")}, want: "c"},
	{name: "matchLabelKeys and mismatchLabelKeys, which the API server has merged into the selector",
		pod: "{metadata: {name: p, labels: {app: web, rev: two, tenant: x}}, spec: {" + apart(`topologyKey: zone, matchLabelKeys: [rev], mismatchLabelKeys: [tenant],
			labelSelector: {matchLabels: {app: web}, matchExpressions: [{key: rev, operator: In, values: [two]}, {key: tenant, operator: NotIn, values: [x]}]}`) + "}}",
		nodes: []string{"a zone=a", "b zone=b", "c zone=c"},
		with:  []string{placed("a", "app: web, rev: one"), placed("b", "app: web, rev: two"), placed("c", "app: web, rev: two, tenant: x")}, want: "a c"},
	{name: "a host port", pod: spec(hostPort("hostPort: 80")), nodes: []string{"a", "b", "c", "d"}, want: "c d", with: []string{
		"{spec: {nodeName: a, " + hostPort("hostPort: 80") + "}}", "{spec: {nodeName: b, " + hostPort("hostPort: 80, hostIP: 10.0.0.1") + "}}",
		"{spec: {nodeName: c, " + hostPort("hostPort: 80, protocol: UDP") + "}}", "{spec: {nodeName: d, " + hostPort("hostPort: 81") + "}}"}},
	{name: "a host port on one address",
		pod: spec(hostPort("hostPort: 80, hostIP: 10.0.0.1")), nodes: []string{"a", "b", "c"}, want: "c", with: []string{
			"{spec: {nodeName: a, " + hostPort("hostPort: 80, hostIP: 0.0.0.0") + "}}", "{spec: {nodeName: b, " + hostPort("hostPort: 80, hostIP: 10.0.0.1") + "}}",
			"{spec: {nodeName: c, " + hostPort("hostPort: 80, hostIP: 10.0.0.2") + "}}"}},
	{name: "a host port of a sidecar",
		pod:   spec("initContainers: [{name: s, restartPolicy: Always, ports: [{containerPort: 1, hostPort: 80}]}], containers: [{name: c}]"),
		nodes: []string{"a", "b"}, with: []string{"{spec: {nodeName: a, " + hostPort("hostPort: 80") + "}}"}, want: "b"},
	{name: "a host port of an init container is free again",
		pod:   spec("initContainers: [{name: s, ports: [{containerPort: 1, hostPort: 80}]}], containers: [{name: c}]"),
		nodes: []string{"a"}, with: []string{"{spec: {nodeName: a, " + hostPort("hostPort: 80") + "}}"}, want: "a"},
	{name: "one port on two addresses",
		pod:   spec("containers: [{name: c, ports: [{containerPort: 1, hostPort: 80, hostIP: 10.0.0.1}, {containerPort: 1, hostPort: 80, hostIP: 10.0.0.2}]}]"),
		nodes: []string{"a", "b"}, with: []string{"{spec: {nodeName: a, " + hostPort("hostPort: 80, hostIP: 10.0.0.2") + "}}"}, want: "b"},
}

var nearRows = []fitRow{
	{name: "affinity", pod: spec(near(zonal + ", " + ofDB)), nodes: zones, with: []string{placed("a1", "app: db")}, want: "a1 a2"},
	{name: "affinity by host",
		pod: spec(near("topologyKey: kubernetes.io/hostname, " + ofDB)), nodes: zones, with: []string{placed("a1", "app: db")}, want: "a1"},
	{name: "affinity to what is not there", pod: spec(near(zonal + ", " + ofDB)), nodes: zones},
	{name: "the first of its kind needs the label only", pod: web(near(zonal + ", " + ofWeb)), nodes: zones, want: "a1 a2 b1"},
	{name: "the second of its kind follows the first",
		pod: web(near(zonal + ", " + ofWeb)), nodes: zones, with: []string{placed("b1", "app: web")}, want: "b1"},
	{name: "two levels",
		pod:   spec(near(zonal+", "+ofDB, "topologyKey: rack, "+ofDB)),
		nodes: []string{"a zone=a rack=1", "b zone=a rack=2", "c zone=b rack=1", "d zone=a"},
		with:  []string{placed("a", "app: db")}, want: "a"},
	{name: "two terms want pods that both select", pod: spec(near(zonal+", "+ofDB, zonal+", labelSelector: {matchLabels: {tier: x}}")), nodes: zones,
		with: []string{placed("a1", "app: db"), placed("a1", "tier: x"), placed("b1", "app: db, tier: x")}, want: "b1"},
	{name: "the first of a kind that two terms select",
		pod:   "{metadata: {name: p, labels: {app: db, tier: x}}, spec: {" + near(zonal+", "+ofDB, "topologyKey: rack, labelSelector: {matchLabels: {tier: x}}") + "}}",
		nodes: []string{"a zone=a rack=1", "b zone=b", "c rack=1"}, want: "a"},
	{name: "who is not in both selections is not the first",
		pod:   "{metadata: {name: p, labels: {app: db}}, spec: {" + near(zonal+", "+ofDB, "topologyKey: rack, labelSelector: {matchLabels: {tier: x}}") + "}}",
		nodes: []string{"a zone=a rack=1"}},
	{name: "affinity across namespaces", pod: spec(near(zonal + ", namespaceSelector: {}, " + ofDB)), nodes: zones,
		with: []string{"{metadata: {namespace: other, labels: {app: db}}, spec: {nodeName: b1}}"}, want: "b1"},
	{name: "the first where a member has no label of one level",
		pod:   "{metadata: {name: p, labels: {app: db}}, spec: {" + near(zonal+", "+ofDB, "topologyKey: rack, "+ofDB) + "}}",
		nodes: []string{"a zone=a", "b zone=a rack=1", "c zone=b rack=1"}, with: []string{placed("a", "app: db")}, want: "b",
		otherwise: "a member is on a node without the label, so Kubernetes does not take the pod for the first"},
}

var spreadRows = []fitRow{
	{name: "maxSkew", pod: web(spread(evenly + ", " + zonal + ", " + ofWeb)), nodes: zones, with: []string{placed("a1", "app: web")}, want: "b1"},
	{name: "maxSkew of 2",
		pod: web(spread("maxSkew: 2, whenUnsatisfiable: DoNotSchedule, " + zonal + ", " + ofWeb)), nodes: zones,
		with: []string{placed("a1", "app: web")}, want: "a1 a2 b1"},
	{name: "a pod that its selector does not select", pod: spec(spread(evenly + ", " + zonal + ", " + ofWeb)), nodes: zones,
		with: []string{placed("a1", "app: web"), placed("a2", "app: web")}, want: "b1"},
	{name: "a pod that its selector does not select, within maxSkew", pod: spec(spread(evenly + ", " + zonal + ", " + ofWeb)), nodes: zones,
		with: []string{placed("a1", "app: web")}, want: "a1 a2 b1"},
	{name: "minDomains", pod: web(spread(evenly + ", minDomains: 3, " + zonal + ", " + ofWeb)), nodes: zones,
		with: []string{placed("a1", "app: web"), placed("b1", "app: web")}},
	{name: "no selector counts nothing",
		pod: web(spread(evenly + ", " + zonal)), nodes: zones, with: []string{placed("a1", "app: web")}, want: "a1 a2 b1"},
	{name: "an empty selector counts nothing",
		pod: web(spread(evenly + ", " + zonal + ", labelSelector: {}")), nodes: zones, with: []string{placed("a1", "app: web")}, want: "a1 a2 b1"},
	{name: "another namespace does not count", pod: web(spread(evenly + ", " + zonal + ", " + ofWeb)), nodes: zones,
		with: []string{"{metadata: {namespace: other, labels: {app: web}}, spec: {nodeName: a1}}"}, want: "a1 a2 b1"},
	{name: "matchLabelKeys",
		pod:   "{metadata: {name: p, labels: {app: web, rev: two}}, spec: {" + spread(evenly+", matchLabelKeys: [rev, none], "+zonal+", "+ofWeb) + "}}",
		nodes: zones,
		with:  []string{placed("a1", "app: web, rev: one"), placed("b1", "app: web, rev: two")}, want: "a1 a2"},
	{name: "matchLabelKeys, which the API server has merged into the selector",
		pod: "{metadata: {name: p, labels: {app: web, rev: two}}, spec: {" + spread(evenly+`, matchLabelKeys: [rev], topologyKey: zone,
			labelSelector: {matchLabels: {app: web}, matchExpressions: [{key: rev, operator: In, values: [two]}]}`) + "}}",
		nodes: zones, with: []string{placed("a1", "app: web, rev: one"), placed("b1", "app: web, rev: two")}, want: "a1 a2"},
	{name: "as many domains as minDomains", pod: web(spread(evenly + ", minDomains: 2, " + zonal + ", " + ofWeb)), nodes: zones,
		with: []string{placed("a1", "app: web"), placed("b1", "app: web")}, want: "a1 a2 b1"},
	{name: "nodes that the pod excludes make no domain", pod: web("nodeSelector: {disk: ssd}, " + spread(evenly+", "+zonal+", "+ofWeb)),
		nodes: []string{"a zone=a disk=ssd", "b zone=b"}, with: []string{placed("a", "app: web")}, want: "a"},
	{name: "nodeAffinityPolicy Ignore", pod: web("nodeSelector: {disk: ssd}, " + spread(evenly+", nodeAffinityPolicy: Ignore, "+zonal+", "+ofWeb)),
		nodes: []string{"a zone=a disk=ssd", "b zone=b"}, with: []string{placed("a", "app: web")}},
	{name: "nodes with taints make domains",
		pod: web(spread(evenly + ", " + zonal + ", " + ofWeb)), nodes: []string{"a zone=a", "b zone=b !k=v:NoSchedule"},
		with: []string{placed("a", "app: web")}},
	{name: "nodeTaintsPolicy Honor", pod: web(spread(evenly + ", nodeTaintsPolicy: Honor, " + zonal + ", " + ofWeb)),
		nodes: []string{"a zone=a", "b zone=b !k=v:NoSchedule", "c zone=c cordoned"}, with: []string{placed("a", "app: web")}, want: "a"},
	{name: "two constraints", pod: web(spread(evenly+", "+zonal+", "+ofWeb, evenly+", topologyKey: kubernetes.io/hostname, "+ofWeb)),
		nodes: []string{"a1 zone=a", "a2 zone=a", "b1 zone=b", "b2 zone=b"}, with: []string{placed("a1", "app: web"), placed("b1", "app: web")}, want: "a2 b2"},
	{name: "a node without the other label makes no domain",
		pod:   web(spread(evenly+", "+zonal+", "+ofWeb, "maxSkew: 5, whenUnsatisfiable: DoNotSchedule, topologyKey: rack, "+ofWeb)),
		nodes: []string{"a zone=a rack=1", "b zone=b"}, with: []string{placed("a", "app: web")}, want: "a"},
	{name: "a node without the other label makes a domain by the policy Ignore",
		pod:   web(spread(evenly+", nodeAffinityPolicy: Ignore, "+zonal+", "+ofWeb, "maxSkew: 5, whenUnsatisfiable: DoNotSchedule, topologyKey: rack, "+ofWeb)),
		nodes: []string{"a zone=a rack=1", "b zone=b"}, with: []string{placed("a", "app: web")},
		otherwise: "in Kubernetes the policy is about node affinity only"},
	{name: "a domain with an empty name",
		pod: web(spread(evenly + ", " + zonal + ", " + ofWeb)), nodes: []string{"a zone=", "b zone=b"}, with: []string{placed("b", "app: web")},
		want: "a"},
	{name: "ScheduleAnyway forbids nothing", pod: web(spread("maxSkew: 1, whenUnsatisfiable: ScheduleAnyway, " + zonal + ", " + ofWeb)), nodes: zones,
		with: []string{placed("a1", "app: web")}, want: "a1 a2 b1 none"},
	{name: "a member on a node that the pod excludes", pod: web("nodeSelector: {disk: ssd}, " + spread(evenly+", "+zonal+", "+ofWeb)),
		nodes: []string{"a zone=a disk=ssd", "b zone=b disk=ssd", "b2 zone=b"}, with: []string{placed("a", "app: web"), placed("b2", "app: web")}, want: "a b",
		otherwise: "Kubernetes does not count the pod on b2, so only b takes the pod"},
}

// TestFits places each pod on each node, as a fact for Recount and as a placement in a ledger, and compares both with what
// Kubernetes documents.
func TestFits(t *testing.T) {
	for kind, rows := range map[string][]fitRow{"resources": resourceRows, "nodes": nodeRows, "apart": apartRows, "near": nearRows, "spread": spreadRows} {
		for _, row := range rows {
			t.Run(kind+"/"+row.name, func(t *testing.T) {
				w, pod := row.world(t)
				assert.Equal(t, row.want, strings.Join(w.fits(t, pod), " "), "the ledger accepts")
				judged := strings.Join(w.judged(pod), " ")
				if row.otherwise == "" {
					assert.Equal(t, row.want, judged, "Recount finds no fault")
				} else {
					assert.NotEqual(t, row.want, judged, "Recount agrees, though %s", row.otherwise)
				}
			})
		}
	}
}

// world returns the cluster of a row, and its pod.
func (row *fitRow) world(t *testing.T) (*world, *corev1.Pod) {
	pod := podFrom(t, row.pod)
	w := &world{pods: []*corev1.Pod{pod}}
	for i, text := range row.with {
		p := podFrom(t, text)
		p.Name = fmt.Sprintf("with-%d", i)
		p.UID = "u" + p.UID
		w.pods = append(w.pods, p)
	}
	for _, text := range row.nodes {
		w.nodes = append(w.nodes, nodeFrom(t, text))
	}
	return w, pod
}

// TestPrefers asks an engine for the best of the nodes that fit.
func TestPrefers(t *testing.T) {
	anyway := "maxSkew: 1, whenUnsatisfiable: ScheduleAnyway, "
	nodes := func(terms string) string { return "affinity: {nodeAffinity: {" + preferred + "[" + terms + "]}}" }
	ssd := "{weight: 1, preference: {matchExpressions: [{key: disk, operator: In, values: [ssd]}]}}"
	crowd := func(node string) (all []string) {
		for range 30 {
			all = append(all, placed(node, "app: x"))
		}
		return all
	}
	set := "{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: r, controller: true}"
	for _, row := range []fitRow{
		{name: "an empty node is better", pod: spec(""), nodes: []string{"a", "b"}, with: crowd("a"), want: "b"},
		{name: "a preferred node", pod: spec(nodes(ssd)), nodes: []string{"a", "b disk=ssd"}, want: "b"},
		{name: "a preference of one point outweighs load", pod: spec(nodes(ssd)), nodes: []string{"a", "b disk=ssd"}, with: crowd("b"), want: "b"},
		{name: "among preferred nodes an empty one is better",
			pod: spec(nodes(ssd)), nodes: []string{"a disk=ssd", "b disk=ssd", "c"}, with: crowd("a"), want: "b"},
		{name: "the heavier preference wins",
			pod:   spec(nodes(ssd + ", {weight: 2, preference: {matchFields: [{key: metadata.name, operator: In, values: [c]}]}}")),
			nodes: []string{"a", "b disk=ssd", "c"}, want: "c"},
		{name: "the expressions of a preference are a conjunction",
			pod:   spec(nodes("{weight: 1, preference: {matchExpressions: [{key: zone, operator: Exists}, {key: disk, operator: Exists}]}}")),
			nodes: []string{"a zone=a", "b disk=ssd", "c zone=a disk=ssd"}, want: "c"},
		{name: "an empty preference is none",
			pod: spec(nodes("{weight: 100, preference: {}}, " + ssd)), nodes: []string{"a", "b disk=ssd"}, want: "b"},
		{name: "preferred affinity",
			pod: spec("affinity: {podAffinity: {" + preferred + "[{weight: 1, podAffinityTerm: {" + zonal + ", " + ofDB + "}}]}}"), nodes: zones,
			with: append(crowd("b1"), placed("b1", "app: db")), want: "b1"},
		{name: "preferred anti-affinity",
			pod:   spec("affinity: {podAntiAffinity: {" + preferred + "[{weight: 1, podAffinityTerm: {" + zonal + ", " + ofDB + "}}]}}"),
			nodes: []string{"a zone=a", "b zone=b", "c zone=b"}, with: append(crowd("a"), placed("b", "app: db")), want: "a"},
		{name: "ScheduleAnyway", pod: web(spread(anyway + zonal + ", " + ofWeb)), nodes: []string{"a zone=a", "b zone=b", "c zone=b"},
			with: append(crowd("a"), placed("b", "app: web")), want: "a"},
		{name: "PreferNoSchedule", pod: spec(""), nodes: []string{"a !k=v:PreferNoSchedule", "b"}, want: "b"},
		{name: "PreferNoSchedule counts as much as five pods", pod: spec(""), nodes: []string{"a !k=v:PreferNoSchedule", "b"}, with: crowd("b")[:4], want: "b"},
		{name: "PreferNoSchedule is outweighed by load", pod: spec(""), nodes: []string{"a !k=v:PreferNoSchedule", "b"}, with: crowd("b")[:6], want: "a"},
		{name: "PreferNoSchedule that is tolerated", pod: spec("tolerations: [{key: k, operator: Exists}]"),
			nodes: []string{"a !k=v:PreferNoSchedule", "b"}, with: crowd("b")[:4], want: "a"},
		{name: "preferences of pods that are placed do not count", pod: web(""), nodes: []string{"a", "b"}, want: "a", with: append(crowd("b"),
			"{spec: {nodeName: a, affinity: {podAntiAffinity: {"+preferred+"[{weight: 100, podAffinityTerm: {topologyKey: kubernetes.io/hostname, "+ofWeb+"}}]}}}}")},
		{name: "a controller alone does not spread its pods",
			pod:   "{metadata: {name: p, labels: {app: web}, ownerReferences: [" + set + "]}}",
			nodes: []string{"a zone=a", "b zone=b"}, want: "a", with: append(crowd("b"), "{metadata: {labels: {app: web}, ownerReferences: ["+set+"]}, spec: {nodeName: a}}")},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, pod := row.world(t)
			assert.Equal(t, row.want, w.chosen(t, pod))
		})
	}
}

// TestUnsayable has each field that orbit cannot say.
func TestUnsayable(t *testing.T) {
	many := func(n int, format string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i))
		}
		return strings.Join(all, ", ")
	}
	term := "{topologyKey: zone, labelSelector: {matchLabels: {app: a%d}}}"
	weighted := "{weight: 1, podAffinityTerm: " + term + "}"
	nodeTerm := "{matchExpressions: [{key: k%d, operator: Exists}]}"
	for _, row := range []struct{ name, pod, field string }{
		{"resource claims", spec("resourceClaims: [{name: gpu, resourceClaimName: gpu}]"), "spec.resourceClaims"},
		{"17 extended resources", asks(many(17, "example.com/r%d: 1")), "spec.containers.resources"},
		{"more of an extended resource than can be counted", asks("example.com/bytes: 1Ti"), "spec.containers.resources"},
		{"17 rules of anti-affinity", spec("affinity: {podAntiAffinity: {" + required + "[" + many(17, term) + "]}}"), "spec.affinity.podAntiAffinity"},
		{"17 levels of affinity", spec("affinity: {podAffinity: {" + required + "[" + many(17, "{topologyKey: k%d, labelSelector: {}}") + "]}}"), "spec.affinity.podAffinity"},
		{"17 preferred terms", spec("affinity: {podAffinity: {" + preferred + "[" + many(17, weighted) + "]}}"), "spec.affinity"},
		{"17 constraints", spec("topologySpreadConstraints: [" + many(17, "{"+evenly+", topologyKey: k%d, "+ofWeb+"}") + "]"), "spec.topologySpreadConstraints"},
		{"more domains than are counted", spec(spread(evenly + ", minDomains: 16777217, " + zonal + ", " + ofWeb)), "spec.topologySpreadConstraints.minDomains"},
		{"17 groups", spec("containers: [{name: c, ports: [" + many(17, "{containerPort: 1, hostPort: 8%d}") + "]}]"), "metadata.labels"},
		{"65 tolerations", spec("tolerations: [" + many(65, "{key: k%d, operator: Exists}") + "]"), "spec.tolerations"},
		{"a toleration that compares", spec(`tolerations: [{key: k, operator: Gt, value: "5"}]`), "spec.tolerations.operator"},
		{"more conditions than there can be", spec("affinity: {nodeAffinity: {" + required + "{nodeSelectorTerms: [" + many(300, nodeTerm) + "]}}}"), "spec.affinity.nodeAffinity"},
		{"a key that means something else", spec("nodeSelector: {orbit/node: a}"), "spec.affinity.nodeAffinity"},
		{"a selector that is not valid", spec(apart(zonal + ", labelSelector: {matchExpressions: [{key: k, operator: Nope}]}")),
			"spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"},
	} {
		t.Run(row.name, func(t *testing.T) {
			pod := podFrom(t, row.pod)
			w := &world{pods: []*corev1.Pod{pod}, nodes: []*corev1.Node{nodeFrom(t, "a")}}
			spec, err := SpecOf(pod, w)
			var lacks *Unsayable
			require.ErrorAs(t, err, &lacks)
			assert.Equal(t, row.field, lacks.Field)
			assert.NotEmpty(t, lacks.Why)

			// A pod that runs already is adopted with the rest of the spec.
			require.NotNil(t, spec)
			l := w.ledger(t)
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{idOf(pod)}, Spec: spec}, orbit.Adopt{Capsule: idOf(pod), Node: "a"})
			state, err := l.Snapshot(context.Background())
			require.NoError(t, err)
			assert.EqualValues(t, 1, state.Node("a").Used()[orbit.Slots])
		})
	}
}

// TestSixteenGroups has a pod that is in as many groups as it can be, and one that is in one more.
func TestSixteenGroups(t *testing.T) {
	pod := podFrom(t, web(""))
	w := &world{pods: []*corev1.Pod{pod}, nodes: []*corev1.Node{nodeFrom(t, "a zone=a")}}
	for i := range 16 {
		rule := apart(fmt.Sprintf("topologyKey: zone, labelSelector: {matchExpressions: [{key: app, operator: NotIn, values: [x%d]}]}", i))
		w.pods = append(w.pods, podFrom(t, fmt.Sprintf("{metadata: {name: other-%d}, spec: {%s}}", i, rule)))
	}
	assert.Equal(t, []string{"a"}, w.fits(t, pod))
	w.pods = append(w.pods, podFrom(t, spec(apart(zonal+", "+ofWeb))))
	_, err := SpecOf(pod, w)
	var lacks *Unsayable
	require.ErrorAs(t, err, &lacks)
	assert.Equal(t, "metadata.labels", lacks.Field)
	assert.Contains(t, lacks.Why, "17 groups")
}

// TestManyDomains has a constraint by host name in a cluster of thousands of nodes, of which one has no pod yet.
func TestManyDomains(t *testing.T) {
	pod := podFrom(t, web(spread(evenly+", topologyKey: kubernetes.io/hostname, "+ofWeb)))
	w := &world{pods: []*corev1.Pod{pod}}
	for i := range 2000 {
		name := fmt.Sprintf("n%d", i)
		w.nodes = append(w.nodes, nodeFrom(t, name))
		if i != 1234 {
			other := podFrom(t, placed(name, "app: web"))
			other.Name = name
			w.pods = append(w.pods, other)
		}
	}
	assert.Equal(t, "n1234", w.chosen(t, pod))
}

// TestLongestNames has names, labels and topology keys of the greatest length that Kubernetes admits.
func TestLongestNames(t *testing.T) {
	name, label := strings.Repeat("n", 253), strings.Repeat("l", 63)
	key := name + "/" + label
	owner := "{apiVersion: v1, kind: ReplicationController, name: " + name + ", uid: u, controller: true}"
	rule := apart("topologyKey: " + key + ", labelSelector: {matchLabels: {" + key + ": " + label + "}}")
	pod := podFrom(t, fmt.Sprintf("{metadata: {name: %s, namespace: %s, labels: {%s: %s}, ownerReferences: [%s]}, spec: {nodeSelector: {%s: %s}, %s}}",
		name, label, key, label, owner, key, label, rule))
	pod.UID = types.UID(strings.Repeat("u", 36))
	w := &world{pods: []*corev1.Pod{pod}, nodes: []*corev1.Node{nodeFrom(t, name+" "+key+"="+label), nodeFrom(t, "b")}}
	assert.Equal(t, []string{name}, w.fits(t, pod))
}

// TestSpecFields has the fields of which the form is what others read.
func TestSpecFields(t *testing.T) {
	of := func(text string) *orbit.Spec {
		s, err := SpecOf(podFrom(t, text), &world{})
		require.NoError(t, err)
		return s
	}
	plain := of(spec(""))
	assert.Equal(t, orbit.LatencySensitive, plain.Class)
	assert.True(t, plain.Ends, "a pod that is evicted has ended")
	assert.False(t, plain.Movable)
	assert.Zero(t, plain.RunsAtMost)
	assert.Empty(t, plain.Module)
	assert.Equal(t, orbit.BestEffort, of(spec("preemptionPolicy: Never")).Class)
	assert.Equal(t, orbit.LatencySensitive, of(spec("preemptionPolicy: PreemptLowerPriority")).Class)
	assert.Equal(t, orbit.GangClass, of(spec("preemptionPolicy: Never, schedulingGroup: {podGroupName: g}")).Class)
	assert.Equal(t, orbit.GangClass, of("{metadata: {name: p, labels: {"+GangLabel+": g}}}").Class)
	assert.EqualValues(t, -7, of(spec("priority: -7")).Priority)
	assert.Equal(t, 90*time.Second, of(spec("activeDeadlineSeconds: 90")).RunsAtMost)
	assert.Zero(t, of(spec("activeDeadlineSeconds: 9223372036854775807")).RunsAtMost, "longer than a duration is unknown")
	owners := "{apiVersion: v1, kind: X, name: x, uid: x}, {apiVersion: apps/v1, kind: ReplicaSet, name: web-1, uid: y, controller: true}"
	assert.Equal(t, "ReplicaSet/default/web-1", of("{metadata: {name: p, ownerReferences: ["+owners+"]}}").Module)

	seconds := func(n int64) time.Duration {
		return of(spec(fmt.Sprintf("tolerations: [{key: k, operator: Exists, effect: NoExecute, tolerationSeconds: %d}]", n))).Tolerate[0].For
	}
	assert.Equal(t, 300*time.Second, seconds(300))
	assert.Equal(t, time.Nanosecond, seconds(0), "at once; 0 would be for ever")
	assert.Equal(t, time.Nanosecond, seconds(-5))
	assert.Zero(t, seconds(9223372036854775807), "for ever")
	assert.Zero(t, of(spec("tolerations: [{operator: Exists}]")).Tolerate[0].For, "for ever")
}

// TestNamespaceLabels has a selector of namespaces by a label of theirs.
func TestNamespaceLabels(t *testing.T) {
	pod := podFrom(t, spec(apart(zonal+", namespaceSelector: {matchLabels: {team: x}}, "+ofWeb)))
	other := podFrom(t, "{metadata: {name: o, namespace: other, labels: {app: web}}, spec: {nodeName: a}}")
	w := &world{pods: []*corev1.Pod{pod, other}, nodes: []*corev1.Node{nodeFrom(t, "a zone=a"), nodeFrom(t, "b zone=b")}}
	assert.Equal(t, []string{"a", "b"}, w.fits(t, pod))
	w.namespaces = map[string]labels.Set{"other": {"team": "x"}}
	assert.Equal(t, []string{"b"}, w.fits(t, pod))
}
