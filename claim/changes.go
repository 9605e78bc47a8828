package claim

import "maps"

// AnnotationLabel is what precedes the key of an annotation in the name of the label that has the value of the annotation.
const AnnotationLabel = "annotation/"

// PhaseRunning is the phase that a claimed slot gets if its [Changes] name no other.
const PhaseRunning = "Running"

// Changes are what a successful claim changes in its slot. A source makes them in the same atomic step as the claim, so a slot
// that is seen claimed has them. A claim that fails changes nothing.
type Changes struct {
	// Images are the container images that the slot gets, by the name of the container; see [ImageLabel].
	Images map[string]string
	// Labels are labels that the slot gets, by key.
	Labels map[string]string
	// Annotations are notes that the slot gets, by key; see [AnnotationLabel]. No Want should depend on them.
	Annotations map[string]string
	// Phase is the phase that the slot gets; see [PhaseLabel]. Empty: the phase that is among Labels, or [PhaseRunning] if none is.
	Phase string
}

// Apply returns the labels that a slot with these labels has after the changes. It changes neither the labels nor c. If c is nil,
// nothing changes, and the result is not a copy.
func (c *Changes) Apply(labels map[string]string) map[string]string {
	if c == nil {
		return labels
	}
	out := make(map[string]string, len(labels)+len(c.Images)+len(c.Labels)+len(c.Annotations)+1)
	maps.Copy(out, labels)
	out[PhaseLabel] = PhaseRunning
	maps.Copy(out, c.Labels)
	for name, image := range c.Images {
		out[ImageLabel+name] = image
	}
	for key, value := range c.Annotations {
		out[AnnotationLabel+key] = value
	}
	if c.Phase != "" {
		out[PhaseLabel] = c.Phase
	}
	return out
}

// changes returns the changes for which the attempt's request asks; nil: it asks for none.
func (a *Attempt) changes() *Changes {
	if a.Request == nil {
		return nil
	}
	return a.Request.Apply
}

func (c *Changes) clone() *Changes {
	if c == nil {
		return nil
	}
	return &Changes{maps.Clone(c.Images), maps.Clone(c.Labels), maps.Clone(c.Annotations), c.Phase}
}
