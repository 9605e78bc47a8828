package kubeorbit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

const uses = "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]"

// claimed gives a world a claim default/data and the volume to which it is bound; no text: it is not bound.
func (w *world) claimed(t *testing.T, claim, volume string) *world {
	w.claims = map[string]*corev1.PersistentVolumeClaim{"default/data": read[corev1.PersistentVolumeClaim](t, claim)}
	w.volumes = map[string]*corev1.PersistentVolume{}
	if volume != "" {
		w.volumes["default/data"] = read[corev1.PersistentVolume](t, volume)
	}
	return w
}

// TestVolumes has bound volumes and the nodes that reach them.
func TestVolumes(t *testing.T) {
	const claim = "{metadata: {name: data, namespace: default}}"
	inZone := `{spec: {nodeAffinity: {required: {nodeSelectorTerms: [
		{matchExpressions: [{key: zone, operator: In, values: [a]}]}, {matchExpressions: [{key: disk, operator: Exists}]}]}}}}`
	zone := "topology.kubernetes.io/zone"
	for _, row := range []struct {
		name, volume string
		nodes        []string
		want         string
	}{
		{"a volume of every node", "{}", []string{"a", "b"}, "a b"},
		{"the node affinity of the volume", inZone, []string{"a zone=a", "b zone=b", "c disk="}, "a c"},
		{"no term matches nothing", "{spec: {nodeAffinity: {required: {nodeSelectorTerms: [{}]}}}}", []string{"a"}, ""},
		{"the zone of the volume", "{metadata: {labels: {" + zone + ": z}}}", []string{"a " + zone + "=z", "b " + zone + "=y", "c topology.kubernetes.io/region=r"}, "a"},
		{"one of several zones", "{metadata: {labels: {" + zone + ": z__y}}}", []string{"a " + zone + "=z", "b " + zone + "=y", "c " + zone + "=x"}, "a b"},
		{"nodes of a cluster without zones", "{metadata: {labels: {" + zone + ": z}}}", []string{"a", "b"}, "a b"},
		{"an old label of the volume", "{metadata: {labels: {failure-domain.beta.kubernetes.io/zone: z}}}", []string{"a " + zone + "=z", "b " + zone + "=y"}, "a"},
		{"how many volumes a node attaches is not judged", "{spec: {csi: {driver: d, volumeHandle: h}}}", []string{"a +attachable-volumes-csi-d=0"}, "a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			pod := podFrom(t, spec(uses))
			w := (&world{pods: []*corev1.Pod{pod}}).claimed(t, claim, row.volume)
			for _, n := range row.nodes {
				w.nodes = append(w.nodes, nodeFrom(t, n))
			}
			assert.Equal(t, row.want, strings.Join(w.fits(t, pod), " "))
		})
	}
}

// TestReadWriteOncePod has a claim that one pod may use at a time, wherever.
func TestReadWriteOncePod(t *testing.T) {
	pod := podFrom(t, spec(uses))
	other := podFrom(t, "{metadata: {name: other}, spec: {"+uses+"}}")
	w := &world{pods: []*corev1.Pod{pod, other}, nodes: []*corev1.Node{nodeFrom(t, "a"), nodeFrom(t, "b zone=b")}}
	w.claimed(t, "{metadata: {name: data, namespace: default}, spec: {accessModes: [ReadWriteOncePod]}}", "{}")
	assert.Equal(t, []string{"a", "b"}, w.fits(t, pod), "nobody uses it")
	other.Spec.NodeName = "a"
	assert.Empty(t, w.fits(t, pod), "another pod uses it")
	w.claims["default/data"].Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	assert.Equal(t, []string{"a", "b"}, w.fits(t, pod), "pods of one claim may share")
}

// TestUnsayableVolumes has the claims for which no node can be chosen.
func TestUnsayableVolumes(t *testing.T) {
	own := "{spec: {volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {}}}}]}, metadata: {name: data-of, namespace: default}}"
	for _, row := range []struct{ name, pod, claim, volume, why string }{
		{"no claim", "{metadata: {name: p, namespace: other}, spec: {" + uses + "}}", "{}", "{}", `there is no claim "data"`},
		{"not bound", spec(uses), "{spec: {storageClassName: wait-for-first-consumer}}", "", "is not bound"},
		{"being deleted", spec(uses), `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}}`, "{}", "is being deleted"},
		{"a claim of somebody else", own, "{metadata: {namespace: default}}", "{}", "was not made for this pod"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := (&world{}).claimed(t, row.claim, row.volume)
			w.claims["default/data-of-v"], w.volumes["default/data-of-v"] = w.claims["default/data"], w.volumes["default/data"]
			_, err := SpecOf(podFrom(t, row.pod), w)
			var lacks *Unsayable
			require.ErrorAs(t, err, &lacks)
			assert.Contains(t, lacks.Why, row.why)
			assert.Contains(t, lacks.Field, "spec.volumes.")
		})
	}
	t.Run("its own claim", func(t *testing.T) {
		pod := podFrom(t, own)
		claim := fmt.Sprintf("{metadata: {namespace: default, ownerReferences: [{apiVersion: v1, kind: Pod, name: data-of, uid: %s, controller: true}]}}", pod.UID)
		w := (&world{}).claimed(t, claim, "{}")
		w.claims["default/data-of-v"], w.volumes["default/data-of-v"] = w.claims["default/data"], w.volumes["default/data"]
		_, err := SpecOf(pod, w)
		assert.NoError(t, err)
	})
	t.Run("a pod that runs keeps a claim that is being deleted", func(t *testing.T) {
		pod := podFrom(t, spec("nodeName: a, "+uses))
		_, err := SpecOf(pod, (&world{}).claimed(t, `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}}`, "{}"))
		assert.NoError(t, err)
	})
}
