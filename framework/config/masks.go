package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ohler55/ojg/jp"

	"github.com/waybill-go/waybill/framework/route"
)

func (l *loader) checkMasks(masks map[string][]string) {
	if l.reported("observe.masks") {
		return
	}
	for _, pattern := range slices.Sorted(maps.Keys(masks)) {
		at := join("observe.masks", pattern)
		if err := route.ValidatePattern(pattern); err != nil {
			l.mistake(at, "%s: use a type like order.placed, a prefix of types like order.*, or *", at)
		}
		for i, path := range masks[pattern] {
			at := fmt.Sprintf("%s[%d]", at, i)
			if _, err := jp.ParseString(path); err != nil || !strings.HasPrefix(path, "$") {
				l.mistake(at, "%s: %q is not a JSON path: use one like $.card.number", at, path)
			}
		}
	}
}
