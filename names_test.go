package chanq_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

func TestPrioritiesAndStatesHaveNames(t *testing.T) {
	require.Equal(t, "low normal high urgent Priority(9)",
		strings.Join([]string{chanq.PriorityLow.String(), chanq.PriorityNormal.String(), chanq.PriorityHigh.String(), chanq.PriorityUrgent.String(), chanq.Priority(9).String()}, " "))
	require.Equal(t, chanq.PriorityNormal, chanq.Priority(0))
}
