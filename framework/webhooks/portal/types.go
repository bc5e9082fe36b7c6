package portal

import (
	"context"
	"encoding/json"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/serializer"
)

// offered is a type that customers can select.
type offered struct {
	Type        string          `json:"type"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
	Example     json.RawMessage `json:"example,omitempty"`
}

// types returns the types that are offered, by name; none if the application's types are not known. Schemas and
// examples that are not JSON are left out.
func (p *portal) types() []offered {
	all := []offered{}
	known := p.endpoints.Types()
	if known == nil {
		return all
	}
	for _, info := range known.Types() {
		if p.Hide(info.Name) || info.Name[0] == '_' {
			continue
		}
		of := offered{Type: info.Name}
		if p.Describe != nil {
			of.Description, of.Schema, of.Example = p.Describe(info.Name)
		} else {
			of.Example = emptyOf(known, info)
		}
		for _, text := range []*json.RawMessage{&of.Schema, &of.Example} {
			if !json.Valid(*text) {
				*text = nil
			}
		}
		all = append(all, of)
	}
	return all
}

// emptyOf returns the payload of a type with empty values, which shows its fields; nil if there is none in JSON.
func emptyOf(known *registry.Registry, info registry.Info) []byte {
	if !serializer.IsJSON(info.ContentType) {
		return nil
	}
	value, err := known.Decode(&notification.Envelope{
		Type: info.Name, Version: info.Version, Payload: []byte("{}"), Metadata: notification.Metadata{notification.MetadataContentType: info.ContentType},
	})
	if err != nil {
		return nil
	}
	e, err := known.Encode(value)
	if err != nil {
		return nil
	}
	return e.Payload
}

func listTypes(_ context.Context, r *request) (any, error) {
	return map[string]any{"types": r.portal.types()}, nil
}
