/* The table of opr.def. */

#include "compiler/model/expand.h"

const struct opr_info *opr_info(enum opr_kind kind)
{
    static const struct opr_info table[] = {
#define OPR(kind, name, reads, beside, word, meaning) [OPR_##kind] = {#name, reads, beside, word},
#include "compiler/model/opr.def"
#undef OPR
    };
    return &table[kind];
}

uint32_t opr_word(const struct opr *o)
{
    if (o->kind == OPR_LINEAR && o->ffn)
        return o->shared ? PART_SHARED | PART_MOE : PART_FFN;
    if (o->kind == OPR_LINEAR)
        return o->attn && o->attn->kind == ATTN_MLA ? PART_MLA_UP : 0;
    if (o->kind == OPR_ACT)
        return o->shared ? PART_SHARED | PART_MOE : PART_FFN | PART_FFN_ACT;
    return opr_info(o->kind)->word;
}
