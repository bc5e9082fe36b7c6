// Package schema is what ent generates the client of the shop from.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
)

// Order is an order of the shop.
type Order struct{ ent.Schema }

// Fields are an id of the shop's own, and what was ordered.
func (Order) Fields() []ent.Field {
	return []ent.Field{field.String("id"), field.String("product")}
}
