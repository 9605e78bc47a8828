package kubeorbit

import (
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"
)

// volumes says which nodes reach the volumes of the pod's claims. How many volumes a node can attach is left out.
func (b *builder) volumes() {
	for i := range b.pod.Spec.Volumes {
		v := &b.pod.Spec.Volumes[i]
		switch {
		case v.PersistentVolumeClaim != nil:
			b.claim("spec.volumes.persistentVolumeClaim", v.PersistentVolumeClaim.ClaimName, false)
		case v.Ephemeral != nil:
			b.claim("spec.volumes.ephemeral", ephemeral.VolumeClaimName(b.pod, v), true)
		}
	}
}

// claim says which nodes reach the volume of a claim.
func (b *builder) claim(field, name string, own bool) {
	claim, bound := b.in.Claim(b.pod.Namespace, name)
	switch {
	case claim == nil:
		b.unsayable(field, "there is no claim %q", name)
		return
	case own && ephemeral.VolumeIsForPod(b.pod, claim) != nil:
		b.unsayable(field, "claim %q was not made for this pod", name)
		return
	case claim.DeletionTimestamp != nil && b.pod.Spec.NodeName == "":
		b.unsayable(field, "claim %q is being deleted", name)
	case bound == nil:
		b.unsayable(field, "claim %q is not bound, and orbit chooses no node for a volume that waits for its first consumer", name)
	}
	for _, mode := range claim.Spec.AccessModes {
		if mode == corev1.ReadWriteOncePod {
			group := "claim/" + b.pod.Namespace + "/" + name
			b.groups = append(b.groups, group)
			b.apart(orbit.Apart{Group: group, Level: ClusterLabel})
		}
	}
	if bound == nil {
		return
	}
	if affinity := bound.Spec.NodeAffinity; affinity != nil && affinity.Required != nil {
		b.require(affinity.Required)
	}
	b.zones(bound)
}

// zoneLabels are the labels by which the zone and the region of a volume are known, and for the old ones those that have
// replaced them.
var zoneLabels = []struct{ key, now string }{
	{corev1.LabelTopologyZone, ""}, {corev1.LabelTopologyRegion, ""},
	{corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyZone}, {corev1.LabelFailureDomainBetaRegion, corev1.LabelTopologyRegion},
}

// zones requires the zone and the region that the labels of a volume name, except of nodes that have no such label at
// all, as in a cluster of one zone. A label of a volume may name several zones, as in "a__b".
func (b *builder) zones(bound *corev1.PersistentVolume) {
	var none []orbit.Predicate
	for _, label := range zoneLabels {
		none = append(none, orbit.Predicate{Key: label.key, Op: "DoesNotExist"})
	}
	for _, label := range zoneLabels {
		value, ok := bound.Labels[label.key]
		zones := strings.Split(value, "__")
		if !ok || slices.Contains(zones, "") {
			continue
		}
		terms := [][]orbit.Predicate{{{Key: label.key, Op: "In", Values: zones}}, none}
		if label.now != "" {
			terms = append(terms, []orbit.Predicate{{Key: label.key, Op: "DoesNotExist"}, {Key: label.now, Op: "In", Values: zones}})
		}
		b.spec.Require = append(b.spec.Require, orbit.Predicate{Op: "AnyOf", Terms: terms})
	}
}
