/* What program_parse() and program_check() refuse, with the exact message.  Each case is one small valid text
 * with the first occurrence of `find` replaced; what the text form cannot say is damaged in memory. */

#include "runtime/program.h"
#include "runtime/program_words.h"
#include "tests/runtime/program_parse.h"
#include "tests/runtime/random_program.h"
#include "tests/runtime/refused.h"

#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>

void suite_program_bad(void);

struct refusal {
    const char *find, *replace, *message;
};

static const struct refusal bad_tables[] = {
    {"role 0 of 1", "role 1 of 1", "role 1 of 1"},
    {"arena 65536", "arena 1125899906842625",
     "an arena of 1125899906842625 bytes, at most 1125899906842624 are allowed"},
    {"sequence=8 batch", "sequence=0 batch", "job: sequence is 0, must be 1 to 1125899906842624"},
    {"sequence=8 batch", "sequence=1125899906842625 batch",
     "job: sequence is 1125899906842625, must be 1 to 1125899906842624"},
    {"batch=2", "batch=0", "job: batch is 0, must be 1 to 1125899906842624"},
    {"vocab=100", "vocab=0", "job: vocab is 0, must be 1 to 1125899906842624"},
    {"optimizer=0", "optimizer=2", "job: optimizer 2 is unknown"},
    {"lr_kind=2", "lr_kind=4", "job: learning rate schedule 4 is unknown"},
    {"beta1=0.9 ", "beta1=inf ", "job: beta1 is not a finite number"},
    {"coord tp most 3", "coord tp most -1", "slot 0 (tp): largest value -1, must be 0 to 4294967295"},
    {"coord tp most 3", "coord tp most 4294967296",
     "slot 0 (tp): largest value 4294967296, must be 0 to 4294967295"},
    {"first cp+dp most 1", "first cp+dp most 2",
     "slot 1 (count): argument 6 and largest value 2 do not belong to its kind first"},
    {"peer 1 most 7", "peer 4294967295 most 7",
     "slot 2 (next): argument 4294967295 and largest value 7 do not belong to its kind peer"},
    {"group tp most 4", "group tp most 0",
     "slot 3 (tpgroup): argument 1 and largest value 0 do not belong to its kind group"},
    {"act depth 3", "act depth 0", "ring 0 (act): it has no slots"},
    {"bytes 3072 ring 0", "bytes 3072 ring 1", "buffer 0 (x): ring 1 of 1"},
    {"bytes 3072 ring 0", "bytes 3071 ring 0", "buffer 0 (x): 3071 bytes are not 3 slots of 1024 bytes"},
    {"bytes 4096 offset 4096", "bytes 0 offset 4096", "buffer 1 (y): 0 bytes, must be 1 to 1125899906842624"},
    {"bytes 4096 offset 4096", "bytes 1125899906842625 offset 4096",
     "buffer 1 (y): 1125899906842625 bytes, must be 1 to 1125899906842624"},
    {"bytes 3072 ring 0 stride 1024", "bytes 3073 ring 0 stride 12297829382473035435", /* three of it: 2^65 + 3073 */
     "buffer 0 (x): 3073 bytes are not 3 slots of 12297829382473035435 bytes"},
    {"bytes 4096 offset 4096", "bytes 4096 stride 64 offset 4096",
     "buffer 1 (y): stride 64 without a ring must be its 4096 bytes"},
    {"bytes 4096 offset 4096", "bytes 4096 offset 4100",
     "buffer 1 (y): offset 4100 is not a multiple of 256"},
    {"bytes 4096 offset 4096", "bytes 4096 offset 61696",
     "buffer 1 (y): 4096 bytes from 61696 on lie beyond the arena's 65536"},
    {"bytes 4096 offset 4096", "bytes 4096 offset 18446744073709551360",
     "buffer 1 (y): 4096 bytes from 18446744073709551360 on lie beyond the arena's 65536"},
    {"stride 1024 offset 0", "stride 1024 offset 0 1024 2048",
     "buffer 0 (x): its slots follow one another and need no places"},
    {"stride 1024 offset 0", "stride 1024 offset 0 3072 1100",
     "buffer 0 (x): offset 1100 is not a multiple of 256"},
    {"stride 1024 offset 0", "stride 1024 offset 0 3072 64768",
     "buffer 0 (x): 1024 bytes from 64768 on lie beyond the arena's 65536"},
    {"stride 1024 offset 0", "stride 1024 offset 18446744073709550592 0 1024",
     "buffer 0 (x): 1024 bytes from 18446744073709550592 on lie beyond the arena's 65536"},
    {"x step f32 bytes 3072 ring 0 stride 1024 offset 0",
     "x step f32 host bytes 3072 ring 0 stride 1024 offset 0 3072 1024",
     "buffer 0 (x): only rings of the step on the device have slots in places of their own"},
    {"x step f32 bytes 3072 ring 0 stride 1024 offset 0",
     "x master f32 bytes 3072 ring 0 stride 1024 offset 0 3072 1024 bucket 0",
     "buffer 0 (x): only rings of the step on the device have slots in places of their own"},
    {"bytes 4096 offset 4096", "bytes 4096 offset 4096 bucket 0",
     "buffer 1 (y): a step buffer has no bucket and no shard"},
    {"w master f32", "w master f64", "buffer 2 (w): a master buffer can't hold f64"},
    {"w master f32 bytes 1024", "w master f32 bytes 1028",
     "buffer 2 (w): 1028 bytes of f32 in 4 shards are not the 1024 elements of bucket dense"},
    {"bucket 0 shard", "bucket 1 shard", "buffer 2 (w): bucket 1 of 1"},
    {"bucket 0 shard tp#0", "bucket 0 shard next#2",
     "buffer 2: its shard slot 2 is not a coordinate or first slot"},
    {"w master f32 bytes 1024 offset 8192", "w master f32 bytes 1024 ring 0 stride 1024 offset 8192",
     "buffer 2 (w): 1024 bytes are not 3 slots of 1024 bytes"},
    {"block f64 bytes 64", "block f64 bytes 72", "buffer 3 (block): the block buffer must be 8 words of f64"},
    {"4 metrics metrics f64 bytes 40", "4 metrics block f64 bytes 64",
     "buffer 4 (metrics): there is a block buffer already"},
    {"4 metrics metrics f64 bytes 40", "4 metrics workspace f64 bytes 40",
     "instruction 6 (6 compute XENT_LOSS loss+=%metrics#4+8[1x1]f64 sum=%y#1[8x2]f32 scale=0.0625 count=0+count#1*1 <recv:0 <dp:0): "
     "operand loss: a workspace holds no operands"},
    {"elements 1024", "elements 0", "bucket 0 (dense): 0 elements, must be 1 to 1125899906842624"},
    {"elements 1024", "elements 1125899906842625",
     "bucket 0 (dense): 1125899906842625 elements, must be 1 to 1125899906842624"},
    {"tensors 2", "tensors 3", "bucket 0 (dense): its 3 tensors from 0 on are not the next ones of 2"},
    {"tensors 2", "tensors 1", "tensor 1 (a.bias): it belongs to no bucket"},
    {"count count#1", "count tp#0", "bucket 0 (dense): its count slot 0 is not a first slot"},
    {"shape 64 8", "shape 0 8", "tensor 0 (a.weight): 2 dimensions of 0 x 8"},
    {"shape 64 8", "shape 1125899906842624 8",
     "tensor 0 (a.weight): 2 dimensions of 1125899906842624 x 8"},
    {"shape 64 8", "shape 64 0", "tensor 0 (a.weight): 2 dimensions of 64 x 0"},
    {"shape 64 8", "shape 4294967296 4294967296",
     "tensor 0 (a.weight): 2 dimensions of 4294967296 x 4294967296"},
    {"box 16 8 at 0", "box 16 0 at 0",
     "tensor 0 (a.weight): a box of 16 x 0 at element 0 does not lie in a bucket of 1024"},
    {"box 16 8 at 0", "box 16 8 at 1025",
     "tensor 0 (a.weight): a box of 16 x 8 at element 1025 does not lie in a bucket of 1024"},
    {"box 16 8 at 0", "box 16 8 at 897",
     "tensor 0 (a.weight): a box of 16 x 8 at element 897 does not lie in a bucket of 1024"},
    {"box 16 8 at 0", "box 16 8 at 1",
     "tensor 1 (a.bias): its elements overlap those of tensor 0 (a.weight)"},
    {"corner 0 0 row", "corner 0 1 row", "tensor 0 (a.weight): its box does not lie in the tensor's 64 x 8"},
    /* up to 2^64, where sums begin again */
    {"corner 0 0 row", "corner 18446744073709551600 0 row",
     "tensor 0 (a.weight): its box does not lie in the tensor's 64 x 8"},
    {"row + tp#0*16", "row + tp#0*6148914691236517200",
     "tensor 0 (a.weight): its box does not lie in the tensor's 64 x 8"},
    {"row + tp#0*16", "row + tpgroup#3*16", "tensor 0: its row slot 3 is not a coordinate or first slot"},
    {"row + tp#0*16", "row + tp#0*9223372036854775808",
     "tensor 0 (a.weight): its box does not lie in the tensor's 64 x 8"},
    {"normal 0.02", "normal inf", "tensor 0 (a.weight): bad initial rule"},
    {"normal 0.02", "normal -1", "tensor 0 (a.weight): bad initial rule"},
    {"tensor 0 a.weight shape 64 8 "
     "box 16 8 at 0 corner 0 0 row + tp#0*16 normal 0.02\n"
     "tensor 1 a.bias shape 8 box 1 8 at 128",
     "tensor 0 a.%.w family 7 from 0 boxes 2 member + tp#0*2 shape 64 8 "
     "box 16 8 at 0 corner 0 0 row + tp#0*16 normal 0.02\n"
     "tensor 1 a.bias shape 8 box 1 8 at 256",
     "tensor 0 (a.%.w): its boxes are not of its family of 7"},
    {"tensor 0 a.weight shape 64 8 "
     "box 16 8 at 0 corner 0 0 row + tp#0*16 normal 0.02\n"
     "tensor 1 a.bias shape 8 box 1 8 at 128",
     "tensor 0 a.w family 8 from 0 boxes 2 member + tp#0*2 shape 64 8 "
     "box 16 8 at 0 corner 0 0 row + tp#0*16 normal 0.02\n"
     "tensor 1 a.bias shape 8 box 1 8 at 256",
     "tensor 0 (a.w): its boxes are not of its family of 8"},
    {"tensor 0 a.weight shape 64 8 "
     "box 16 8 at 0 corner 0 0 row + tp#0*16 normal 0.02\n"
     "tensor 1 a.bias shape 8 box 1 8 at 128",
     "tensor 0 a.%.w family 1048577 from 0 boxes 2 member + tp#0*2 shape 64 8 "
     "box 16 8 at 0 corner 0 0 row + tp#0*16 normal 0.02\n"
     "tensor 1 a.bias shape 8 box 1 8 at 256",
     "tensor 0 (a.%.w): its boxes are not of its family of 1048577"},
    {"tensor 0 a.weight shape 64 8 "
     "box 16 8 at 0 corner 0 0 row + tp#0*16 normal 0.02\n"
     "tensor 1 a.bias shape 8 box 1 8 at 128",
     "tensor 0 a.%.w family 8 from 0 boxes 2 member + tp#0*9223372036854775808 shape 64 8 "
     "box 16 8 at 0 corner 0 0 row + tp#0*16 normal 0.02\n"
     "tensor 1 a.bias shape 8 box 1 8 at 256",
     "tensor 0 (a.%.w): its boxes are not of its family of 8"},
    {"tensor 0 a.weight shape 64 8 "
     "box 16 8 at 0 corner 0 0 row + tp#0*16 normal 0.02\n"
     "tensor 1 a.bias shape 8 box 1 8 at 128",
     "tensor 0 a.%.w family 8 from 0 boxes 2 member + tpgroup#3*2 shape 64 8 "
     "box 16 8 at 0 corner 0 0 row + tp#0*16 normal 0.02\n"
     "tensor 1 a.bias shape 8 box 1 8 at 256",
     "tensor 0: its member slot 3 is not a coordinate or first slot"},
    {"tensor 0 a.weight shape 64 8 "
     "box 16 8 at 0 corner 0 0 row + tp#0*16 normal 0.02\n"
     "tensor 1 a.bias shape 8 box 1 8 at 128",
     "tensor 0 a.%.w family 8 from 0 boxes 0 member + tp#0*2 shape 64 8 "
     "box 16 8 at 0 corner 0 0 row + tp#0*16 normal 0.02\n"
     "tensor 1 a.bias shape 8 box 1 8 at 256",
     "tensor 0 (a.%.w): a box of 16 x 8 at element 0 does not lie in a bucket of 1024"},
    {"tensor 0 a.weight shape 64 8 "
     "box 16 8 at 0 corner 0 0 row + tp#0*16 normal 0.02\n"
     "tensor 1 a.bias shape 8 box 1 8 at 128",
     "tensor 0 a.%.w family 8 from 0 boxes 2 member + tp#0*2 shape 64 8 " /* two of it: 2^64 + 4 elements */
     "box 2147549185 4294836226 at 0 corner 0 0 row + tp#0*16 normal 0.02\n"
     "tensor 1 a.bias shape 8 box 1 8 at 256",
     "tensor 0 (a.%.w): a box of 2147549185 x 4294836226 at element 0 does not lie in a bucket of 1024"},
    {"tensor 0 a.weight shape 64 8 "
     "box 16 8 at 0 corner 0 0 row + tp#0*16 normal 0.02\n"
     "tensor 1 a.bias shape 8 box 1 8 at 128",
     "tensor 0 a.%.w family 9 from 0 boxes 3 member + tp#0*2 shape 64 8 "
     "box 16 8 at 0 corner 0 0 row + tp#0*16 normal 0.02\n"
     "tensor 1 a.bias shape 8 box 1 8 at 256",
     "tensor 1 (a.bias): its elements overlap those of tensor 0 (a.%.w)"},
    {"w master f32 bytes", "w master f32 host bytes", "buffer 0 (x): offset 0 lies in the 9216 bytes of host memory"},
    {"x step f32 bytes", "x step f32 host bytes",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1[8x8]f32 a=%y#1[8x4/8]f32 b=%w#2[8x4]f32 <compute:0 ; F s0 mb1 L2 line 7): "
     "operand c: only copies on queue copy reach host memory"},
};

static const struct refusal bad_code[] = {
    {"0 compute TOKENS", "0 tp TOKENS",
     "instruction 0 (0 tp TOKENS tokens=%y#1+2048[8x1]i32 step=%block#3[1x8]f64 sample=0 sequence=8 first=0 "
     "shift=0): it may "
     "not run on queue tp"},
    {"2 tp ALL_REDUCE", "2 send ALL_REDUCE",
     "instruction 2 (2 send ALL_REDUCE x=%x#0~1[8x8]f32 group=@tpgroup#3 max=0 <compute:1): it may not run "
     "on queue send"},
    {"2 tp ALL_REDUCE", "1 tp ALL_REDUCE",
     "instruction 2 (1 tp ALL_REDUCE x=%x#0~1[8x8]f32 group=@tpgroup#3 max=0 <compute:1): seq 1 follows 1"},
    {"c=%x#0~1[8x8]f32 ", "",
     "instruction 1 (1 compute MATMUL_NT a=%y#1[8x4/8]f32 b=%w#2[8x4]f32 <compute:0 ; F s0 mb1 L2 line 7): "
     "operand c is missing"},
    {"c=%x#0~1[8x8]f32", "c=%x#0~1[8x7]f32",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1[8x7]f32 a=%y#1[8x4/8]f32 b=%w#2[8x4]f32 <compute:0 ; F s0 "
     "mb1 L2 line 7): operand b: 8 rows, but n = 7"},
    {"c=%x#0~1[8x8]f32", "c=%x#0~1[0x8]f32",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1[0x8]f32 a=%y#1[8x4/8]f32 b=%w#2[8x4]f32 <compute:0 ; F s0 "
     "mb1 L2 line 7): operand c: it is empty"},
    {"c=%x#0~1[8x8]f32", "c=%x#0~1[8x0]f32",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1[8x0]f32 a=%y#1[8x4/8]f32 b=%w#2[8x4]f32 <compute:0 ; F s0 "
     "mb1 L2 line 7): operand c: it is empty"},
    {"c=%x#0~1[8x8]f32", "c=%x#0~1[8x8/7]f32",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1[8x8/7]f32 a=%y#1[8x4/8]f32 b=%w#2[8x4]f32 <compute:0 ; F "
     "s0 mb1 L2 line 7): operand c: its rows overlap (ld < cols)"},
    {"c=%x#0~1[8x8]f32", "c=%x#0~1[8x8]f64",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1[8x8]f64 a=%y#1[8x4/8]f32 b=%w#2[8x4]f32 <compute:0 ; F s0 "
     "mb1 L2 line 7): operand c: its dtype may not be f64 here"},
    {"c=%x#0~1[8x8]f32", "c=%x#0~1+2[8x8]f32",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1+2[8x8]f32 a=%y#1[8x4/8]f32 b=%w#2[8x4]f32 <compute:0 ; F "
     "s0 mb1 L2 line 7): operand c: its offset is not a multiple of its dtype's size"},
    {"c=%x#0~1[8x8]f32", "c=%x#0~1+772[8x8]f32",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1+772[8x8]f32 a=%y#1[8x4/8]f32 b=%w#2[8x4]f32 <compute:0 ; F "
     "s0 mb1 L2 line 7): operand c: it does not lie in one slot of its ring"},
    {"c=%x#0~1[8x8]f32", "c=%x#0~3[8x8]f32",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~3[8x8]f32 a=%y#1[8x4/8]f32 b=%w#2[8x4]f32 <compute:0 ; F s0 "
     "mb1 L2 line 7): operand c: it does not lie in its buffer"},
    {"c=%x#0~1[8x8]f32", "c=%x#0~1[8x8/111]f32",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1[8x8/111]f32 a=%y#1[8x4/8]f32 b=%w#2[8x4]f32 <compute:0 ; F "
     "s0 mb1 L2 line 7): operand c: it does not lie in its buffer"},
    {"b=%w#2[8x4]f32", "b=%w#2[8x4]bf16",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1[8x8]f32 a=%y#1[8x4/8]f32 b=%w#2[8x4]bf16 <compute:0 ; F s0 "
     "mb1 L2 line 7): operand b: its dtype may not be bf16 here"},
    {"b=%w#2[8x4]f32", "b=%w#2[4294967295x4294967295]f32",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1[8x8]f32 a=%y#1[8x4/8]f32 b=%w#2[4294967295x4294967295]f32 "
     "<compute:0 ; F s0 mb1 L2 line 7): operand b: its size does not fit 64 bits"},
    {"b=%w#2[8x4]f32", "b=%w#2+tp#0*18446744073709551612[8x4]f32",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1[8x8]f32 a=%y#1[8x4/8]f32 "
     "b=%w#2+tp#0*18446744073709551612[8x4]f32 <compute:0 ; F s0 mb1 L2 line 7): operand b: its largest "
     "offset does not fit 64 bits"},
    {"b=%w#2[8x4]f32", "b=%w#2+tp#0*6148914691236517204[8x4]f32",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1[8x8]f32 a=%y#1[8x4/8]f32 "
     "b=%w#2+tp#0*6148914691236517204[8x4]f32 <compute:0 ; F s0 mb1 L2 line 7): operand b: its size does not fit "
     "64 bits"},
    {"b=%w#2[8x4]f32", "b=%w#2+2048[8x4]f32",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1[8x8]f32 a=%y#1[8x4/8]f32 b=%w#2+2048[8x4]f32 <compute:0 ; F s0 "
     "mb1 L2 line 7): operand b: it does not lie in its buffer"},
    {"b=%w#2[8x4]f32", "b=%w#2+next#2*4[8x4]f32",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1[8x8]f32 a=%y#1[8x4/8]f32 b=%w#2+next#2*4[8x4]f32 "
     "<compute:0 ; F s0 mb1 L2 line 7): operand b: its slot is not a coordinate or first slot"},
    {"tp#0*256[8x8]f32", "tp#0*1024[8x8]f32",
     "instruction 4 (4 recv RECV y=%y#1+1024+tp#0*1024[8x8]f32 peer=@next#2): operand y: it does not lie in "
     "its buffer"},
    {"tp#0*256[8x8]f32", "tp#0*2[8x8]f32",
     "instruction 4 (4 recv RECV y=%y#1+1024+tp#0*2[8x8]f32 peer=@next#2): operand y: its offset is not a "
     "multiple of its dtype's size"},
    {"<compute:0", "<compute:1",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1[8x8]f32 a=%y#1[8x4/8]f32 b=%w#2[8x4]f32 <compute:1 ; F s0 "
     "mb1 L2 line 7): it waits for itself or a later instruction of its own queue"},
    {"<compute:0", "<send:1",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1[8x8]f32 a=%y#1[8x4/8]f32 b=%w#2[8x4]f32 <send:1 ; F s0 mb1 "
     "L2 line 7): it waits for send:1, but that queue has 1 instructions"},
    {"<compute:0", "<copy:0",
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1[8x8]f32 a=%y#1[8x4/8]f32 b=%w#2[8x4]f32 <copy:0 ; F s0 mb1 "
     "L2 line 7): it waits for copy:0, but that queue has 0 instructions"},
    {"group=@tpgroup#3", "group=@next#2",
     "instruction 2 (2 tp ALL_REDUCE x=%x#0~1[8x8]f32 group=@next#2 max=0 <compute:1): attribute group is "
     "not a group slot"},
    {"peer=@next#2", "",
     "instruction 3 (3 send SEND x=%x#0~1+256[8x8]f32 peer=@?#4294967295 <tp:0): attribute peer is not a "
     "peer slot"},
    {"scale=0.0625", "scale=nan",
     "instruction 6 (6 compute XENT_LOSS loss+=%metrics#4+8[1x1]f64 sum=%y#1[8x2]f32 scale=nan "
     "count=0+count#1*1 <recv:0 <dp:0): attribute scale is not a finite number"},
    {"max=0", "max=2",
     "instruction 2 (2 tp ALL_REDUCE x=%x#0~1[8x8]f32 group=@tpgroup#3 max=2 <compute:1): attribute max must "
     "be 0 to 1"},
    {"count=0+count#1*1", "count=0+count#1*-1",
     "instruction 6 (6 compute XENT_LOSS loss+=%metrics#4+8[1x1]f64 sum=%y#1[8x2]f32 scale=0.0625 "
     "count=0+count#1*-1 <recv:0 <dp:0): attribute count is not a number from 0 on for all values of its "
     "slot"},
    {"count=0+count#1*1", "count=9223372036854775807+count#1*1",
     "instruction 6 (6 compute XENT_LOSS loss+=%metrics#4+8[1x1]f64 sum=%y#1[8x2]f32 scale=0.0625 "
     "count=9223372036854775807+count#1*1 <recv:0 <dp:0): attribute count is not a number from 0 on for all "
     "values of its slot"},
    {"count=0+count#1*1", "count=-1",
     "instruction 6 (6 compute XENT_LOSS loss+=%metrics#4+8[1x1]f64 sum=%y#1[8x2]f32 scale=0.0625 count=-1 "
     "<recv:0 <dp:0): attribute count is not a number from 0 on for all values of its slot"},
    {"[16x8]f32 x=", "[15x8]f32 x=",
     "instruction 5 (5 dp ALL_GATHER y=%y#1[15x8]f32 x=%w#2[4x8]f32 group=@tpgroup#3): operand y: 15 rows, "
     "but group_n*t = 16"},
    {"sample=0 sequence=8", "sample=0+tp#0*6148914691236517206 sequence=8",
     "instruction 0 (0 compute TOKENS tokens=%y#1+2048[8x1]i32 step=%block#3[1x8]f64 sample=0+tp#0*6148914691236517206 sequence=8 "
     "first=0 shift=0): attribute sample is not a number from 0 on for all values of its slot"},
    {"sample=0 sequence=8", "sample=1125899906842625+tp#0*-1 sequence=8",
     "instruction 0 (0 compute TOKENS tokens=%y#1+2048[8x1]i32 step=%block#3[1x8]f64 sample=1125899906842625+tp#0*-1 sequence=8 "
     "first=0 shift=0): attribute sample is not a number from 0 on for all values of its slot"},
    {"sample=0 sequence=8", "sample=0+tp#0*1125899906842624 sequence=8",
     "instruction 0 (0 compute TOKENS tokens=%y#1+2048[8x1]i32 step=%block#3[1x8]f64 sample=0+tp#0*1125899906842624 sequence=8 "
     "first=0 shift=0): attribute sample is not a number from 0 on for all values of its slot"},
    {"sample=0 sequence=8", "sample=0+next#2*1 sequence=8",
     "instruction 0 (0 compute TOKENS tokens=%y#1+2048[8x1]i32 step=%block#3[1x8]f64 sample=0+next#2*1 sequence=8 "
     "first=0 shift=0): attribute sample is not a number from 0 on for all values of its slot"},
    {"sample=0 sequence=8", "sample=-1+tp#0*1 sequence=8",
     "instruction 0 (0 compute TOKENS tokens=%y#1+2048[8x1]i32 step=%block#3[1x8]f64 sample=-1+tp#0*1 sequence=8 "
     "first=0 shift=0): attribute sample is not a number from 0 on for all values of its slot"},
    {"sample=0 sequence=8", "sample=0 sequence=3",
     "instruction 0 (0 compute TOKENS tokens=%y#1+2048[8x1]i32 step=%block#3[1x8]f64 sample=0 sequence=3 "
     "first=0 shift=0): t "
     "= 8 must be divisible by sequence = 3"},
    {"sample=0 sequence=8", "sample=0 sequence=0",
     "instruction 0 (0 compute TOKENS tokens=%y#1+2048[8x1]i32 step=%block#3[1x8]f64 sample=0 sequence=0 "
     "first=0 shift=0): "
     "attribute sequence must be 1 to 4294967295"},
    {"heads=2 kv=1 head=2", "heads=1 kv=1 head=4",
     "instruction 7 (7 compute ATTENTION o=%y#1[8x4]f32 lse=%y#1+1024[8x2]f32 q=%x#0[8x4]f32 "
     "k=%x#0+256[8x2]f32 v=%x#0+512[8x2]f32 heads=1 kv=1 head=4 sequence=4 scale=0.5 window=0 softcap=0): "
     "operand lse: 2 columns, but heads = 1"},
    {"heads=2 kv=1 head=2", "heads=3 kv=2 head=2",
     "instruction 7 (7 compute ATTENTION o=%y#1[8x4]f32 lse=%y#1+1024[8x2]f32 q=%x#0[8x4]f32 "
     "k=%x#0+256[8x2]f32 v=%x#0+512[8x2]f32 heads=3 kv=2 head=2 sequence=4 scale=0.5 window=0 softcap=0): "
     "operand o: 4 columns can't be heads*u"},
    {"sequence=4 scale", "sequence=3 scale",
     "instruction 7 (7 compute ATTENTION o=%y#1[8x4]f32 lse=%y#1+1024[8x2]f32 q=%x#0[8x4]f32 "
     "k=%x#0+256[8x2]f32 v=%x#0+512[8x2]f32 heads=2 kv=1 head=2 sequence=3 scale=0.5 window=0 softcap=0): t "
     "= 8 must be divisible by sequence = 3"},
    {"7 compute ATTENTION",
     "7 compute ATTENTION o=%y#1[8x6]f32 lse=%y#1+1024[8x3]f32 q=%x#0[8x6]f32 k=%x#0+256[8x4]f32 "
     "v=%x#0+512[8x4]f32 heads=3 kv=2 head=2 sequence=4\n# ",
     "instruction 7 (7 compute ATTENTION o=%y#1[8x6]f32 lse=%y#1+1024[8x3]f32 q=%x#0[8x6]f32 "
     "k=%x#0+256[8x4]f32 v=%x#0+512[8x4]f32 heads=3 kv=2 head=2 sequence=4 scale=0 window=0 softcap=0): "
     "heads = 3 must be divisible by kv = 2"},
    {"7 compute ATTENTION", "7 compute ROPE y=%y#1[8x4]f32 x=%x#0[8x4]f32 head=3 dims=2 sequence=8\n# ",
     "instruction 7 (7 compute ROPE y=%y#1[8x4]f32 x=%x#0[8x4]f32 head=3 dims=2 adjacent=0 inverse=0 start=0 "
     "sequence=8 theta=0 scaling=0 factor=0 low=0 high=0 original=0 first=0 shift=0 from=0 magnitude=0): "
     "a = 4 must be divisible by head = 3"},
    {"7 compute ATTENTION", "7 compute ROPE y=%y#1[8x4]f32 x=%x#0[8x4]f32 head=4 dims=6 sequence=8\n# ",
     "instruction 7 (7 compute ROPE y=%y#1[8x4]f32 x=%x#0[8x4]f32 head=4 dims=6 adjacent=0 inverse=0 start=0 "
     "sequence=8 theta=0 scaling=0 factor=0 low=0 high=0 original=0 first=0 shift=0 from=0 magnitude=0): "
     "dims = 6 must be at most head = 4"},
    {"7 compute ATTENTION", "7 compute ROPE y=%y#1[8x4]f32 x=%x#0[8x4]f32 head=4 dims=3 sequence=8\n# ",
     "instruction 7 (7 compute ROPE y=%y#1[8x4]f32 x=%x#0[8x4]f32 head=4 dims=3 adjacent=0 inverse=0 start=0 "
     "sequence=8 theta=0 scaling=0 factor=0 low=0 high=0 original=0 first=0 shift=0 from=0 magnitude=0): "
     "dims = 3 must be divisible by 2"},
    {"7 compute ATTENTION",
     "7 compute POSITION y=%y#1[8x4]f32 x=%x#0[8x4]f32 table=%w#2[4x4]f32 sequence=8\n# ",
     "instruction 7 (7 compute POSITION y=%y#1[8x4]f32 x=%x#0[8x4]f32 table=%w#2[4x4]f32 start=0 "
     "sequence=8 first=0 shift=0): sequence = 8 must be at most s = 4"},
    {"7 compute ATTENTION", "7 dp BROADCAST x=%y#1[8x4]f32 group=@tpgroup#3 root=4\n# ",
     "instruction 7 (7 dp BROADCAST x=%y#1[8x4]f32 group=@tpgroup#3 root=4): root = 4 must be less than "
     "group_n = 4"},
    {"7 compute ATTENTION", "7 tp SHIFT y=%y#1[6x4]f32 x=%x#0[6x4]f32 group=@tpgroup#3 by=4\n# ",
     "instruction 7 (7 tp SHIFT y=%y#1[6x4]f32 x=%x#0[6x4]f32 group=@tpgroup#3 by=4): by = 4 must be less than group_n = 4"},
    {"7 compute ATTENTION", "7 tp ALL_TO_ALL y=%y#1[6x4]f32 x=%x#0[6x4]f32 group=@tpgroup#3\n# ",
     "instruction 7 (7 tp ALL_TO_ALL y=%y#1[6x4]f32 x=%x#0[6x4]f32 group=@tpgroup#3): operand y: 6 rows "
     "can't be group_n*t"},
    {"7 compute ATTENTION", "7 compute SEAM step=%block#3[1x8]f64\n# ",
     "instruction 0 (0 compute TOKENS tokens=%y#1+2048[8x1]i32 step=%block#3[1x8]f64 sample=0 sequence=8 "
     "first=0 shift=0): the "
     "program has one seam, not two"},
    {"7 compute ATTENTION",
     "7 compute SEAM step=%block#3[1x8]f64\n8 compute SEAM step=%block#3[1x8]f64\n9 compute SEAM "
     "step=%block#3[1x8]f64\n# ",
     "instruction 9 (9 compute SEAM step=%block#3[1x8]f64): a third seam"},
    {"7 compute ATTENTION", "7 compute RELU y=%y#1[6x4]f32 x=%x#0[6x4]f32 power=3\n# ",
     "instruction 7 (7 compute RELU y=%y#1[6x4]f32 x=%x#0[6x4]f32 power=3): attribute power must be 1 to 2"},
    {"7 compute ATTENTION",
     "7 compute LAYERNORM_W dg+=%y#1[1x4]f32 db=%y#1+512[1x4]f32 dy=%x#0[6x4]f32 x=%x#0[6x4]f32 "
     "mean=%x#0[6x1]f32 rstd=%x#0[6x1]f32\n# ",
     "instruction 7 (7 compute LAYERNORM_W dg+=%y#1[1x4]f32 db=%y#1+512[1x4]f32 dy=%x#0[6x4]f32 "
     "x=%x#0[6x4]f32 mean=%x#0[6x1]f32 rstd=%x#0[6x1]f32): operand db: all outputs must be written or all "
     "accumulated"},
};

static const struct refusal bad_text[] = {
    {"llmc program 1", "llmc program 2", "line 1: version 2, this build reads version 1"},
    {"llmc program", "program", "line 1: expected 'llmc' at 'program 1'"},
    {"role 0", "roll 0", "line 2: unknown line"},
    {"evaluation no", "evaluation maybe", "line 3: expected 'no' at 'maybe'"},
    {"batch=2", "batsh=2", "line 4: expected 'batch='"},
    {"seed=1", "seed=18446744073709551616", "line 4: a number that does not fit 64 bits"},
    {"seed=1", "seed=-1", "line 4: expected a number"},
    {"lr=0.001", "lr=0.001x", "line 4: '0.001x' is not a number"},
    {"slot 1", "slot 2", "line 7: number 2 where 1 is next"},
    {"count first", "count#1 first", "line 7: unknown word at '#1 first cp+dp most '"},
    {"count first", "a_name_that_is_far_too_long first", "line 7: a name of more than 23 characters"},
    {"coord tp", "coord ep", "line 6: unknown axis 'ep'"},
    {"first cp+dp", "first cp+ep", "line 7: unknown axis 'ep'"},
    {"y step f32", "y step f8", "line 12: unknown dtype"},
    {"shard tp#0", "shard pp#0", "line 13: slot 0 is not 'pp'"},
    {"shard tp#0", "shard tp#9", "line 13: slot 9 is not 'tp'"},
    {"row + tp#0*16", "row + tp#0", "line 17: expected '*' and a stride"},
    {"normal 0.02", "uniform 0.02", "line 17: unknown word at 'uniform 0.02'"},
    {"count count#1", "count count#1 more", "line 16: more than expected at 'more'"},
    {"1 compute MATMUL_NT", "1 gpu MATMUL_NT", "line 20: unknown queue"},
    {"1 compute MATMUL_NT", "1 compute GEMM", "line 20: unknown instruction 'GEMM'"},
    {"c=%x#0~1[8x8]f32", "c=%y#0~1[8x8]f32", "line 20: buffer 0 is not 'y'"},
    {"c=%x#0~1[8x8]f32", "c=%x#5~1[8x8]f32", "line 20: buffer 5 is not 'x'"},
    {"c=%x#0~1[8x8]f32", "c=%x#0~99999999999999999[8x8]f32", "line 20: an offset that does not fit 64 bits"},
    {"c=%x#0~1[8x8]f32", "c=%x#0+18446744073709551615+1[8x8]f32",
     "line 20: an offset that does not fit 64 bits"},
    {"c=%x#0~1[8x8]f32", "c=%x#0~1[8x8f32", "line 20: expected ']' after a shape"},
    {"c=%x#0~1[8x8]f32", "c=%x#0~1[8]f32", "line 20: expected 'x' in a shape"},
    {"c=%x#0~1[8x8]f32", "c=%x#0~1[8x4294967296]f32", "line 20: 4294967296 does not fit 32 bits"},
    {"c=%x#0~1[8x8]f32", "c=%x#0~1[8x8]f32 c=%x#0~1[8x8]f32",
     "line 20: MATMUL_NT has already its operand 'c'"},
    {"a=%y#1[8x4/8]f32", "a+=%y#1[8x4/8]f32", "line 20: operand 'a' of MATMUL_NT can't be accumulated into"},
    {"a=%y#1[8x4/8]f32", "z=%y#1[8x4/8]f32", "line 20: MATMUL_NT has no operand 'z'"},
    {"max=0", "max=0 max=0", "line 21: ALL_REDUCE has already its attribute 'max'"},
    {"max=0", "min=0", "line 21: ALL_REDUCE has no attribute 'min'"},
    {"max=0", "max=9223372036854775808", "line 21: a number that does not fit 64 bits"},
    {"group=@tpgroup#3", "group=3", "line 21: expected '@' and a slot"},
    {"<compute:0", "<compute:", "line 20: expected a number"},
    {"<compute:0", "<gpu:0", "line 20: expected queue:position after '<'"},
    {"<compute:0", "<any:0", "line 20: expected queue:position after '<'"}, /* no program's queue */
    {"mb1", "mc1", "line 20: unknown tag at 'mc1 L2 line 7'"},
    {"mb1", "mb1,", "line 20: expected a space after a tag"},
    {" s0 ", " s65535 ", "line 20: stage 65535 does not fit 16 bits"},
    {"line 7", "line", "line 20: expected a number"},
    {"count count#1", "count count", "line 16: expected '#' and an index after 'count'"},
    {"group=@tpgroup#3", "group=@tpgroup#4", "line 21: slot 4 is not 'tpgroup'"},
    {"c=%x#0~1[8x8]f32", "c=%x~1[8x8]f32", "line 20: expected %buffer#index"},
    {"c=%x#0~1[8x8]f32", "c=%x#0~1(8x8)f32", "line 20: expected '[' and a shape"},
    {"max=0", "max", "line 21: expected '=' after 'max'"},
    {"max=0", "max=0]", "line 21: unexpected ']'"},
    {"buffer 1 y", "buffer 1 [", "line 12: expected a name"},
    {"stride 1024 offset 0", "stride 1024 offset 0 3072", "line 11: expected the offset of every slot"},
    {"stride 1024 offset 0", "stride 1024 offset 0 3072 1024 2048", "line 11: more than expected at '2048'"},
    {"bytes 4096 offset 4096", "bytes 4096 offset 4096 8192", "line 12: more than expected at '8192'"},
    {"tp coord tp most", "tp behind tp 16777216 most", "line 6: no such slot"},
    {"tensors 2", "tensors 4294967295\nbucket 1 more elements 8 tensors 1\nbucket 2 most elements 8 tensors 1",
     "line 18: too many tensors"},
};

/* small with the first `find` replaced */
static char *changed(const struct refusal *r)
{
    const char *at = strstr(small_program, r->find);
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    size_t before = (size_t)(at - small_program), size = strlen(small_program) + strlen(r->replace) + 1;
    char *text = malloc(size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    snprintf(text, size, "%.*s%s%s", (int)before, small_program, r->replace, at + strlen(r->find));
    return text;
}

static void refuse(const struct refusal *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct program *p;
        char *text = changed(&r[i]);
        struct error error = {""};
        enum status s = program_parse(text, strlen(text), &p, &error);
        CU_ASSERT_PTR_NULL(p);
        refused_expect(s, error.text, r[i].message);
        program_free(p);
        free(text);
    }
}
#define REFUSE(table) refuse(table, sizeof table / sizeof *table)

static void test_bad_tables(void)
{
    REFUSE(bad_tables);
}

static void test_bad_code(void)
{
    REFUSE(bad_code);
}

static void test_bad_text(void)
{
    REFUSE(bad_text);
}

/* ---- faults that the text form cannot say ---- */

/* one fault per function: of the third instruction, of its first operand, or of the buffer y */
#define DAMAGE(name, ...)                                                                                    \
    static void name(struct program *p, struct insn *in, struct operand *o, struct buffer *y)                \
    {                                                                                                        \
        (void)p, (void)in, (void)o, (void)y;                                                                 \
        __VA_ARGS__;                                                                                         \
    }
DAMAGE(bad_opcode, in->op = 999)
DAMAGE(bad_queue, in->queue = NQUEUES)
DAMAGE(bad_operands, in->operand = p->noperands)
DAMAGE(bad_attrs, in->attr = UINT32_MAX)
DAMAGE(bad_waits, in->wait = p->nwaits)
DAMAGE(bad_buffer, o->buffer = p->nbuffers)
DAMAGE(bad_mark, o->mark = MARK_READ)
DAMAGE(missing_operand, o->buffer = NONE)
DAMAGE(bad_action, in->action = 'f')
DAMAGE(endless_name, memset(y->name, 'n', sizeof y->name))
DAMAGE(no_name, y->name[0] = 0)
DAMAGE(bad_dtype, y->dtype = (enum dtype)99)
DAMAGE(bad_kind, y->kind = (enum buffer_kind)99)
DAMAGE(bad_wait_queue, p->waits[in->wait].queue = NQUEUES)
DAMAGE(stride_alone, o->slot_stride = 256)
DAMAGE(real_of_a_slot, p->attrs[p->insns[6].attr].slot = 0) /* scale */
DAMAGE(real_with_a_stride, p->attrs[p->insns[6].attr].stride = 1)
DAMAGE(group_with_a_number, p->attrs[in->attr].u.i = 1)
DAMAGE(group_with_a_stride, p->attrs[in->attr].stride = 1)
DAMAGE(integer_with_a_stride, p->attrs[in->attr + 1].stride = 1)
DAMAGE(control_in_name, y->name[0] = 1)
DAMAGE(number_of_no_axis, p->slots[0].arg = 0)
DAMAGE(number_of_unknown_axes, p->slots[0].arg |= 1u << NDIGITS)
DAMAGE(first_of_unknown_axes, p->slots[1].arg |= 1u << NDIGITS)
DAMAGE(shard_of_no_bucket, y->shard_slot = 0)
DAMAGE(second_metrics, p->buffers[3].kind = BUFFER_METRICS, p->buffers[3].bytes = p->buffers[3].stride = 40)
DAMAGE(second_workspace, p->buffers[0].kind = y->kind = BUFFER_WORKSPACE, p->buffers[0].ring = NONE,
       p->buffers[0].stride = p->buffers[0].bytes)
DAMAGE(corner_without_slot, p->tensors[0].col_stride = 1)
DAMAGE(no_dimensions, p->tensors[0].ndim = 0)
DAMAGE(one_dimension, p->tensors[0].ndim = 1)
DAMAGE(three_dimensions, p->tensors[0].ndim = 3)
DAMAGE(count_by_no_slot, p->buckets[0].count_slot = p->nslots)
DAMAGE(written_input, p->operands[p->insns[1].operand + 1].mark = MARK_WRITE)
DAMAGE(read_output, p->operands[p->insns[1].operand].mark = MARK_READ)
DAMAGE(digit_for_an_action, in->action = '1')
DAMAGE(body_of_another_opcode, p->insns[7] = *in, p->insns[7].seq = 7, p->insns[7].op = OP_BROADCAST)
DAMAGE(another_tensor, p->buckets[0].tensor = 1)
DAMAGE(unknown_values, p->tensors[0].init = NINIT_KINDS)
DAMAGE(host_on_compute, p->buffers[0].host = true, p->insns[1].op = OP_COPY)
DAMAGE(host_workspace, p->buffers[0].kind = BUFFER_WORKSPACE, p->buffers[0].ring = NONE, p->buffers[0].host = true,
       p->buffers[0].stride = p->buffers[0].bytes)
DAMAGE(block_in_a_ring, p->rings[0].depth = 1, p->buffers[3].ring = 0, p->buffers[0].ring = NONE,
       p->buffers[0].stride = p->buffers[0].bytes)
DAMAGE(body_on_another_queue, p->insns[7] = *in, p->insns[7].seq = 7, p->insns[7].queue = QUEUE_DP)
DAMAGE(body_of_other_attributes, p->insns[7] = *in, p->insns[7].seq = 7, p->insns[7].attr = p->insns[3].attr)
DAMAGE(places_without_a_ring, y->scattered = true, program_add_place(p, y->offset))
DAMAGE(no_places, p->buffers[0].scattered = true)
DAMAGE(too_few_places, p->buffers[0].scattered = true, program_add_place(p, 0), program_add_place(p, 3072))
DAMAGE(later_places, p->buffers[0].scattered = true, p->buffers[0].place = 1, program_add_place(p, 0),
       program_add_place(p, 0), program_add_place(p, 3072), program_add_place(p, 1024))
DAMAGE(place_of_nothing, program_add_place(p, 0))
DAMAGE(another_first_place, p->buffers[0].scattered = true, program_add_place(p, 256), program_add_place(p, 3072),
       program_add_place(p, 1280))
DAMAGE(count_alone, p->attrs[p->insns[6].attr + 1].slot = NONE) /* of count, the last attribute */

static const struct {
    void (*damage)(struct program *p, struct insn *in, struct operand *o, struct buffer *y);
    const char *message;
} bad_memory[] = {
    {bad_opcode, "instruction 2 (2 tp opcode 999): unknown opcode"},
    {bad_queue, "instruction 2 (2 any ALL_REDUCE x=%x#0~1[8x8]f32 group=@tpgroup#3 max=0 <compute:1): "
                "unknown queue 6"},
    {bad_operands, "instruction 2 (2 tp ALL_REDUCE group=@tpgroup#3 max=0 <compute:1): its operands lie beyond the "
                   "program's 19"},
    {bad_attrs, "instruction 2 (2 tp ALL_REDUCE x=%x#0~1[8x8]f32 <compute:1): its attributes lie beyond the "
                "program's 21"},
    {bad_waits, "instruction 2 (2 tp ALL_REDUCE x=%x#0~1[8x8]f32 group=@tpgroup#3 max=0): its waits lie beyond the "
                "program's 5"},
    {bad_buffer, "instruction 2 (2 tp ALL_REDUCE x=%?#5+1024[8x8]f32 group=@tpgroup#3 max=0 <compute:1): operand "
                 "x: buffer 5 of 5"},
    {bad_mark, "instruction 2 (2 tp ALL_REDUCE x=%x#0~1[8x8]f32 group=@tpgroup#3 max=0 <compute:1): operand x: "
               "mark 1 is not what the table says"},
    {missing_operand, "instruction 2 (2 tp ALL_REDUCE group=@tpgroup#3 max=0 <compute:1): operand x is missing"},
    {bad_action, "instruction 2 (2 tp ALL_REDUCE x=%x#0~1[8x8]f32 group=@tpgroup#3 max=0 <compute:1 ; f): its "
                 "action is not a letter"},
    {endless_name, "buffer 1: its name is not terminated"},
    {no_name, "buffer 1: it has no name"},
    {bad_dtype, "buffer 1 (y): unknown dtype 99"},
    {bad_kind, "buffer 1 (y): unknown kind 99"},
    {bad_wait_queue, "instruction 2 (2 tp ALL_REDUCE x=%x#0~1[8x8]f32 group=@tpgroup#3 max=0 <any:1): it waits on "
                     "queue 6 of 6"},
    {stride_alone, "instruction 2 (2 tp ALL_REDUCE x=%x#0~1[8x8]f32 group=@tpgroup#3 max=0 <compute:1): operand x: it "
                   "has a slot stride without a slot"},
    {real_of_a_slot,
     "instruction 6 (6 compute XENT_LOSS loss+=%metrics#4+8[1x1]f64 sum=%y#1[8x2]f32 scale=0.0625 "
     "count=0+count#1*1 <recv:0 <dp:0): attribute scale is not a finite number"},
    {real_with_a_stride,
     "instruction 6 (6 compute XENT_LOSS loss+=%metrics#4+8[1x1]f64 sum=%y#1[8x2]f32 scale=0.0625 "
     "count=0+count#1*1 <recv:0 <dp:0): attribute scale is not a finite number"},
    {group_with_a_number,
     "instruction 2 (2 tp ALL_REDUCE x=%x#0~1[8x8]f32 group=@tpgroup#3 max=0 <compute:1): attribute group is not "
     "a group slot"},
    {group_with_a_stride,
     "instruction 2 (2 tp ALL_REDUCE x=%x#0~1[8x8]f32 group=@tpgroup#3 max=0 <compute:1): attribute group is not "
     "a group slot"},
    {integer_with_a_stride,
     "instruction 2 (2 tp ALL_REDUCE x=%x#0~1[8x8]f32 group=@tpgroup#3 max=0 <compute:1): attribute max is "
     "not a plain integer"},
    {control_in_name,
     "buffer 1: byte 1 in its name; allowed are printable ASCII characters but " PROGRAM_NAME_ENDS},
    {number_of_no_axis, "slot 0 (tp): argument 0 and largest value 3 do not belong to its kind coord"},
    {number_of_unknown_axes, "slot 0 (tp): argument 257 and largest value 3 do not belong to its kind coord"},
    {first_of_unknown_axes, "slot 1 (count): argument 262 and largest value 1 do not belong to its kind first"},
    {shard_of_no_bucket, "buffer 1 (y): a step buffer has no bucket and no shard"},
    {second_metrics, "buffer 4 (metrics): there is a metrics buffer already"},
    {second_workspace, "buffer 1 (y): there is a workspace buffer already"},
    {corner_without_slot, "tensor 0 (a.weight): its box does not lie in the tensor's 64 x 8"},
    {no_dimensions, "tensor 0 (a.weight): 0 dimensions of 64 x 8"},
    {one_dimension, "tensor 0 (a.weight): 1 dimensions of 64 x 8"},
    {three_dimensions, "tensor 0 (a.weight): 3 dimensions of 64 x 8"},
    {count_by_no_slot, "bucket 0 (dense): its count slot 4 is not a first slot"},
    {written_input,
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1[8x8]f32 a=%y#1[8x4/8]f32 b=%w#2[8x4]f32 <compute:0 ; F s0 mb1 "
     "L2 line 7): operand a: mark 2 is not what the table says"},
    {read_output,
     "instruction 1 (1 compute MATMUL_NT c=%x#0~1[8x8]f32 a=%y#1[8x4/8]f32 b=%w#2[8x4]f32 <compute:0 ; F s0 mb1 "
     "L2 line 7): operand c: mark 1 is not what the table says"},
    {digit_for_an_action, "instruction 2 (2 tp ALL_REDUCE x=%x#0~1[8x8]f32 group=@tpgroup#3 max=0 <compute:1 ; 1): its "
                          "action is not a letter"},
    {body_of_another_opcode,
     "instruction 7 (7 tp BROADCAST x=%x#0~1[8x8]f32 group=@tpgroup#3 root=0 <compute:1): it shares operands with "
     "instruction 2, but not its opcode, queue and attributes"},
    {another_tensor, "bucket 0 (dense): its 2 tensors from 1 on are not the next ones of 2"},
    {unknown_values, "tensor 0 (a.weight): bad initial rule"},
    {host_on_compute,
     "instruction 1 (1 compute COPY y=%x#0~1[8x8]f32 x=%y#1[8x4/8]f32 <compute:0 ; F s0 mb1 L2 line 7): operand "
     "y: only copies on queue copy reach host memory"},
    {host_workspace, "buffer 0 (x): a workspace can't be a ring or in host memory"},
    {block_in_a_ring, "buffer 3 (block): the block buffer must be 8 words of f64"},
    {body_on_another_queue,
     "instruction 7 (7 dp ALL_REDUCE x=%x#0~1[8x8]f32 group=@tpgroup#3 max=0 <compute:1): it shares operands with "
     "instruction 2, but not its opcode, queue and attributes"},
    {body_of_other_attributes,
     "instruction 7 (7 tp ALL_REDUCE x=%x#0~1[8x8]f32 group=@next#2 max=0 <compute:1): it shares operands with "
     "instruction 2, but not its opcode, queue and attributes"},
    {places_without_a_ring,
     "buffer 1 (y): only rings of the step on the device have slots in places of their own"},
    {no_places, "buffer 0 (x): its 3 slots have not the places 0 and following"},
    {too_few_places, "buffer 0 (x): its 3 slots have not the places 0 and following"},
    {later_places, "buffer 0 (x): its 3 slots have not the places 0 and following"},
    {place_of_nothing, "1 places for the 0 slots of scattered rings"},
    {another_first_place, "buffer 0 (x): its offset is not its first slot's"},
    {count_alone, "instruction 6 (6 compute XENT_LOSS loss+=%metrics#4+8[1x1]f64 sum=%y#1[8x2]f32 scale=0.0625 count=0 "
                  "<recv:0 <dp:0): attribute count is not a number from 0 on for all values of its slot"},
};

static void test_bad_memory(void)
{
    for (size_t i = 0; i < sizeof bad_memory / sizeof *bad_memory; i++) {
        struct program *p;
        struct error error = {""};
        CU_ASSERT_EQUAL_FATAL(program_parse(small_program, strlen(small_program), &p, &error), STATUS_OK);
        struct insn *in = &p->insns[2];
        bad_memory[i].damage(p, in, &p->operands[in->operand], &p->buffers[1]);
        enum status s = program_check(p, &error);
        refused_expect(s, error.text, bad_memory[i].message);
        program_free(p);
    }
}

void program_bad_refusals(void)
{
    test_bad_tables();
    test_bad_code();
    test_bad_text();
    test_bad_memory();
}

void suite_program_bad(void)
{
    CU_pSuite s = CU_add_suite("program_bad", NULL, NULL);
    CU_add_test(s, "tables", test_bad_tables);
    CU_add_test(s, "code", test_bad_code);
    CU_add_test(s, "text", test_bad_text);
    CU_add_test(s, "memory", test_bad_memory);
}
