package config

import (
	"slices"
	"strings"
)

// suggest returns the candidate that the user most likely meant; "" if none is close. At most a
// third of the letters may differ.
func suggest(typed string, candidates []string) string {
	best, least := "", max(1, len(typed)/3)+1
	for _, candidate := range slices.Sorted(slices.Values(candidates)) {
		if d := editDistance(strings.ToLower(typed), strings.ToLower(candidate)); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// didYouMean returns the end of a sentence with a suggestion, or if none is close, with all
// candidates.
func didYouMean(typed string, candidates []string) string {
	if near := suggest(typed, candidates); near != "" {
		return "; did you mean " + near + "?"
	}
	if len(candidates) == 0 {
		return ""
	}
	return "; known are " + strings.Join(slices.Sorted(slices.Values(candidates)), ", ")
}

// editDistance returns how many bytes must be inserted, deleted, replaced or swapped with their
// neighbour to turn a into b: the optimal string alignment distance.
func editDistance(a, b string) int {
	var before []int // the row above previous
	previous := make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(previous[j]+cost, previous[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, previous = previous, row
	}
	return previous[len(b)]
}
