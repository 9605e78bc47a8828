package kubeorbit

import (
	"context"
	"fmt"
	"testing"

	"github.com/orbitsched/orbit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestNodeOf has what others read of a node; what it takes is in TestFits.
func TestNodeOf(t *testing.T) {
	n, err := NodeOf(nodeFrom(t, "a zone=z role= +cpu=3920m +ephemeral-storage=1Ki +nvidia.com/gpu=8 +hugepages-2Mi=1Gi +hugepages-1Gi=0 !k=v:NoExecute cordoned"))
	require.NoError(t, err)
	assert.Equal(t, orbit.NodeID("a"), n.ID)
	assert.True(t, n.Confirms)
	assert.Equal(t, orbit.Ready, n.State, "a cordon is a taint, which some pods tolerate")
	assert.Equal(t, orbit.Resources{orbit.CPU: 3920, orbit.Memory: 8 << 30, orbit.Disk: 1024, orbit.Slots: 110, 4: 8}, n.Capacity)
	assert.Equal(t, []orbit.Extra{{Name: "hugepages-2Mi", Amount: 512}}, n.Extras)
	assert.Equal(t, []orbit.Taint{{Key: "k", Value: "v", Effect: "NoExecute"}, {Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"}}, n.Taints)
	assert.Equal(t, map[string]string{"zone": "z", "role": "-", "kubernetes.io/hostname": "a", ClusterLabel: "all"}, n.Labels)

	twice, err := NodeOf(nodeFrom(t, "a cordoned !node.kubernetes.io/unschedulable=:NoSchedule"))
	require.NoError(t, err)
	assert.Len(t, twice.Taints, 1)
}

// TestNodeFieldsThatAreLeftOut has what a node says that places no pods: its conditions, of which the node controller makes taints, what it
// has already, and what it declares.
func TestNodeFieldsThatAreLeftOut(t *testing.T) {
	n := nodeFrom(t, "a zone=z")
	plain, err := NodeOf(n)
	require.NoError(t, err)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}, {Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}}
	n.Status.Images = []corev1.ContainerImage{{Names: []string{"nginx"}, SizeBytes: 1 << 30}}
	n.Status.VolumesAttached, n.Status.VolumesInUse = []corev1.AttachedVolume{{Name: "v"}}, []corev1.UniqueVolumeName{"v"}
	n.Status.DeclaredFeatures = []string{"GuaranteedQoSPodCPUResize"}
	n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64")}
	n.Spec.PodCIDR = "10.0.0.0/24"
	left, err := NodeOf(n)
	require.NoError(t, err)
	assert.Equal(t, plain, left)
}

// TestNodesThatCannotBeSaid has nodes with more than orbit counts.
func TestNodesThatCannotBeSaid(t *testing.T) {
	extras, taints := "a", "a"
	for i := range 17 {
		extras += fmt.Sprintf(" +example.com/r%d=1", i)
	}
	for i := range 65 {
		taints += fmt.Sprintf(" !k%d=v:NoSchedule", i)
	}
	for text, field := range map[string]string{extras: "status.allocatable", taints: "spec.taints", "a +example.com/bytes=1Ti": "status.allocatable"} {
		_, err := NodeOf(nodeFrom(t, text))
		var lacks *Unsayable
		require.ErrorAs(t, err, &lacks)
		assert.Equal(t, field, lacks.Field)
	}
}

// TestNodesChange puts the node of a pod again, with less than the pod takes: that is a fact, and nothing is added.
func TestNodesChange(t *testing.T) {
	there := podFrom(t, "{metadata: {name: there}, spec: {nodeName: a}}")
	w := &world{pods: []*corev1.Pod{there}, nodes: []*corev1.Node{nodeFrom(t, "a")}}
	l := w.ledger(t)
	less, err := NodeOf(nodeFrom(t, "a +cpu=50m"))
	require.NoError(t, err)
	commit(t, l, orbit.PutNode{Node: less})
	state, err := l.Snapshot(context.Background())
	require.NoError(t, err)
	assert.Negative(t, state.Node("a").Free()[orbit.CPU])
}
