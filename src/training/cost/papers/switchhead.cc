#include "items.h"

namespace headroom::cost::detail {
namespace {

constexpr PaperItem kDraftItems[] = {
    {"Figure 1", "the layer", "",
     "A drawing. The layer: `model.attention.projection = \"experts\"`, described in `docs/layers.md`."},
    {"Eq. 4-6", "whole heads gated", "switchhead/*_gated_heads",
     "`headroom train switchhead/wt103_47m_gated_heads --out runs/gated`"},
    {"Eq. 11-15", "multiply-accumulates and memory of Transformer-XL, of this layer and of MoA", "",
     "`headroom cost --paper switchhead`; any config's, by the same rule: `headroom cost switchhead/wt103_47m`"},
    {"Table 1", "which projections need experts, 16 combinations", "switchhead/table1_*",
     "`headroom compare switchhead/table1_vo switchhead/table1_o switchhead/table1_none --out runs/table1`"},
    {"Table 2", "MoA with sigmoid and softmax, two sizes",
     "switchhead/wt103_*_moa_* switchhead/wt103_47m switchhead/wt103_262m switchhead/wt103_*_dense_h1?",
     "`headroom compare switchhead/wt103_47m_dense_h10 switchhead/wt103_47m switchhead/wt103_47m_moa_h8 --out "
     "runs/moa`; "
     "costs: `headroom cost --paper switchhead`"},
    {"Table 3", "C4, WikiText-103, peS2o, Enwik8", "",
     "As the final paper's Table 2, whose dense model of C4 with 4 heads it lacks."},
    {"Table 4", "Fast Transformer: expert attention and expert MLP", "", "As the final paper's Table 3 (SwitchAll)."},
    {"Table 5", "rotary positions on WikiText-103", "", "As the final paper's Table 7."},
    {"Table 6", "hyperparameters", "switchhead/*_272m_switchall",
     "As the final paper's Table 9, and the Fast Transformers of 272M, which only the draft has; `tests/recipes` holds "
     "every "
     "recipe against it."},
    {"Table 7", "time and memory of training", "", "As the final paper's Table 5, without MoA."},
    {"Figure 2", "attention maps of models of ListOps, and a head with its experts", "",
     "As the final paper's Figures 2 and 5."},
    {"Figure 3", "all maps of SwitchHead", "", "As the final paper's Figure 3."},
    {"Figure 4", "all maps of the dense model", "", "As the final paper's Figure 4."},
    {"Figure 5", "every head of SwitchHead with its experts", "", "As the final paper's Figure 5."},
    {"Figure 6", "induction heads and stripes", "", "As the final paper's Figure 6."},
};

constexpr PaperItem kFinalItems[] = {
    {"Figure 1", "the layer", "",
     "A drawing. The layer: `model.attention.projection = \"experts\"`, described in `docs/layers.md`."},
    {"Eq. 4-6", "whole heads gated", "switchhead/*_gated_heads",
     "`headroom train switchhead/wt103_47m_gated_heads --out runs/gated`"},
    {"Section 3", "matching models in parameters", "",
     "`headroom match switchhead/wt103_47m --target switchhead/wt103_47m_dense_h10 --by parameters`"},
    {"Section 3", "data: 8,000 pieces of SentencePiece, bytes of Enwik8; streams of chunks with memory", "",
     "Of the recipes. C4 and peS2o are JSON lines, of which training reads as many tokens as its steps take; a "
     "tokenizer once "
     "made serves all: `headroom tokenizer train corpus.jsonl --out c4.tokenizer`, `headroom data prepare corpus.jsonl "
     "--tokenizer c4.tokenizer --out c4.tokens`. Perplexity, and bits a byte: `headroom evaluate RUN --data "
     "test.txt`."},
    {"Table 1", "MoA with sigmoid and softmax, two sizes",
     "switchhead/wt103_*_moa_* switchhead/wt103_47m switchhead/wt103_262m switchhead/wt103_*_dense_h1?",
     "`headroom compare switchhead/wt103_47m_dense_h10 switchhead/wt103_47m switchhead/wt103_47m_moa_h8 --out "
     "runs/moa`; "
     "costs: `headroom cost --paper switchhead`"},
    {"Table 2", "C4, WikiText-103, peS2o, Enwik8",
     "switchhead/wt103_47m* switchhead/wt103_262m* switchhead/c4_47m switchhead/c4_262m* switchhead/enwik8_41m*",
     "`headroom compare switchhead/wt103_47m_dense_h10 switchhead/wt103_47m_dense_h2 switchhead/c4_47m --out runs/c4`; "
     "peS2o's "
     "models are those of C4; costs: `headroom cost --paper switchhead`; Enwik8 in small: `headroom compare "
     "small/enwik_dense_h8 small/enwik_dense_h2 small/enwik_switchhead_h2 --out runs/enwik`"},
    {"Table 3", "SwitchAll: expert attention and expert MLP", "switchhead/*_switchall",
     "`headroom compare switchhead/wt103_47m_dense_h10 switchhead/wt103_47m_switchall --out runs/switchall`; costs: "
     "`headroom cost --paper switchhead`"},
    {"Section 3.5", "models of the dense model's multiply-accumulates", "switchhead/c4_*_macs",
     "`headroom match switchhead/c4_47m --target switchhead/wt103_47m_dense_h10 --by macs`; in small: `headroom "
     "compare zoo/dense zoo/switchhead small/switchhead_macs --out runs/macs`"},
    {"Section 3.6", "one selection for values and outputs", "switchhead/c4_*_shared",
     "`headroom compare switchhead/c4_47m switchhead/c4_47m_shared --out runs/shared`; in small: `headroom compare "
     "zoo/switchhead small/switchhead_shared --out runs/shared`"},
    {"Table 4", "C4: perplexity, LAMBADA, BLiMP, Children's Books",
     "switchhead/c4_47m switchhead/c4_262m switchhead/c4_*_macs switchhead/c4_*_shared switchhead/wt103_*_dense_h*",
     "`headroom evaluate RUN --task lambada --data lambada_test.jsonl.gz`, `headroom evaluate RUN --task blimp --data "
     "blimp.tar.gz`, `headroom evaluate RUN --task cbt --data CBTest.tgz`"},
    {"Table 5", "time and memory of training", "",
     "`headroom bench switchhead switchhead_262m`: the dense model, SwitchHead and MoA. The paper's are those of an "
     "RTX 3090 and "
     "of 8 V100."},
    {"Section 4", "ListOps: accuracy with 8 heads, 2 heads, 2 SwitchHead heads", "switchhead/listops_six_layers_*",
     "`headroom compare switchhead/listops_six_layers_dense_h8 switchhead/listops_six_layers_dense_h2 "
     "switchhead/listops_six_layers_h2 --out runs/listops`; in small: `docs/results.md`"},
    {"Figure 2", "the largest of all heads' weights, layer 3, ListOps", "switchhead/listops_six_layers_*",
     kAnalyseMaps},
    {"Figure 3", "the same of every layer, SwitchHead", "switchhead/listops_six_layers_h2", kAnalyseMaps},
    {"Figure 4", "the same of every layer, dense", "switchhead/listops_six_layers_dense_h8", kAnalyseMaps},
    {"Figure 5", "each head with its experts beside it", "switchhead/listops_six_layers_h2", kAnalyseMaps},
    {"Figure 6", "induction heads and stripes in language models",
     "switchhead/wt103_47m switchhead/wt103_47m_dense_h10", kAnalyseInduction},
    {"Section A.1", "beside FlashAttention", "",
     "Words. Attention here never holds a matrix of all scores where it is fused: `docs/operators.md`; `headroom "
     "doctor` says "
     "where it is."},
    {"Section A.2", "multiply-accumulates and memory of each layer", "",
     "`headroom cost --paper switchhead`; any config's, by the same rule: `headroom cost switchhead/wt103_47m`"},
    {"Table 6", "which projections need experts, 16 combinations", "switchhead/table1_*",
     "`headroom compare switchhead/table1_vo switchhead/table1_o switchhead/table1_none --out runs/table6`"},
    {"Table 7", "rotary positions on WikiText-103 and C4", "switchhead/wt103_*_rope* switchhead/c4_*_rope*",
     "`headroom compare switchhead/wt103_45m_rope_dense_h10 switchhead/wt103_45m_rope --out runs/rope`; costs: "
     "`headroom cost --paper switchhead`"},
    {"Table 8", "rotary positions on C4: LAMBADA, BLiMP, Children's Books", "switchhead/c4_*_rope*",
     "As Table 4: `headroom evaluate RUN --task blimp --data blimp.tar.gz`"},
    {"Table 9", "hyperparameters", "switchhead/wt103_* switchhead/c4_* switchhead/enwik8_*",
     "`headroom recipes`; `tests/recipes` holds every recipe against it."},
    {"Section A.6", "why SwitchAll is smaller", "",
     "`headroom cost switchhead/wt103_47m switchhead/wt103_47m_switchall`"},
    {"Table 10", "machines and hours of the authors' runs", "",
     "A record of the authors' machines. What one here takes: `docs/performance.md`, and `headroom advise` within a "
     "given time."},
};

}  // namespace

std::span<const PaperItem> switchhead_draft_items() {
  return kDraftItems;
}

std::span<const PaperItem> switchhead_items() {
  return kFinalItems;
}

}  // namespace headroom::cost::detail
