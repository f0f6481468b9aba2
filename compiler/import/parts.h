#ifndef LLMC_IMPORT_PARTS_H
#define LLMC_IMPORT_PARTS_H

/* Private to families*.c: what configurations share.  A model's first layer is filled in, then copied. */

#include "compiler/import/families.h"

/* vocabulary, width, layers and their heads; returns the first layer */
struct described_layer *part_sizes(struct fields *f, struct described *m);
void part_copy_layers(struct described *m);
void part_rms(struct fields *f, struct described *m, double eps);
void part_layernorm(struct fields *f, struct described *m, const char *eps, bool bias);
/* the activation of the inner layer, gated or not; usual: where the field is not there */
void part_activation(struct fields *f, struct described_ffn *ffn, const char *field, const char *usual, bool gated);
/* Rotary positions.  share: the field that says how much of a head turns, or NULL: all of it. */
struct described_rope part_rope(struct fields *f, const struct described *m, double theta, const char *share,
                                double usual_share, uint32_t head);
void part_tied(struct fields *f, struct described *m, bool otherwise);
/* Which layers see a window: by "layer_types", else all but each whose number, modulo pattern, is `whole`. */
void part_windows(struct fields *f, struct described *m, uint32_t window, uint32_t pattern, uint32_t whole);

/* families_gpt.c */
void family_gpt2(struct fields *f, struct described *m);
void family_gpt_bigcode(struct fields *f, struct described *m);
void family_gpt_neox(struct fields *f, struct described *m);
void family_gptj(struct fields *f, struct described *m);
void family_phi(struct fields *f, struct described *m);
void family_opt(struct fields *f, struct described *m);
void family_bloom(struct fields *f, struct described *m);
void family_falcon(struct fields *f, struct described *m);
void family_mpt(struct fields *f, struct described *m);
void family_starcoder2(struct fields *f, struct described *m);
void family_nemotron(struct fields *f, struct described *m);

#endif
