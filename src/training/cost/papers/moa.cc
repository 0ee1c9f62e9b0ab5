#include "items.h"

namespace headroom::cost::detail {
namespace {

constexpr PaperItem kMoaItems[] = {
    {"Figure 1", "the layer", "", "A drawing."},
    {"Figure 2", "the layer, with its router", "",
     "A drawing. The layer: `model.attention.projection = \"routed_heads\"`, described in `docs/layers.md`."},
    {"Eq. 2-3", "noisy routing", "",
     "`model.attention.noisy_routing = true`: `headroom train moa/wmt14_ende_8k8e128d --set "
     "model.attention.noisy_routing=true --out runs/noisy`"},
    {"Eq. 13-17", "losses of the heads' use", "",
     "`model.attention.switch_coefficient`, `model.attention.z_coefficient`; each a figure of training"},
    {"Eq. 18-20", "multiply-accumulates and parameters of a layer", "", "`headroom cost --paper moa`"},
    {"Table 1", "WMT14, English to German and French", "moa/wmt14_*_dense moa/wmt14_*_8k8e128d moa/wmt14_*_16k32e256d",
     "`headroom train moa/wmt14_ende_8k8e128d --out runs/ende`, `headroom evaluate runs/ende --average 10 --data "
     "test.tsv`; sizes and costs: `headroom cost --paper moa`"},
    {"Table 1", "Admin, 6 to 60 layers", "",
     "Without recipes: Admin's initialisation, which profiles the layers' outputs first, is not there. Costs of its "
     "shapes: `headroom cost --paper moa`; a depth as such: `headroom train moa/wmt14_ende_base_dense --set "
     "model.n_layers=18 --set model.n_decoder_layers=18 --out runs/deep`"},
    {"Table 1", "MAE-7, LightConv, DynamicConv", "",
     "Quoted from their own papers: heads trained in turns, and convolutions, none of which are layers here."},
    {"Section 5.1", "BLEU: means of the last 10 epochs' checkpoints, beam 4", "",
     "`headroom evaluate RUN --average 10 --beam 4 --length-penalty 0.6`; figure "
     "`compound_bleu`, which splits compounds as the paper's script does: of pairs that are tokenised already, as the "
     "script tokenises them; also `bleu`, `tokenised_bleu` and `chrf`"},
    {"Table 2", "masked language models on WikiText-103", "moa/wikitext103_mlm_*",
     "`headroom compare moa/wikitext103_mlm_dense moa/wikitext103_mlm_8k8e128d --out runs/mlm`; sizes: `headroom cost "
     "--paper moa`, which says why the column of multiply-accumulates cannot be derived; in small: `docs/results.md`, "
     "and numbers of heads to choose from: `headroom compare zoo/moa small/moa_4k4e40d small/moa_4k16e40d "
     "small/moa_4k32e40d --out runs/experts`"},
    {"Table 3", "heads a token, heads, width", "moa/wmt14_ende_*k*e*d",
     "`headroom compare moa/wmt14_ende_8k8e128d moa/wmt14_ende_8k8e256d moa/wmt14_ende_8k32e256d --out runs/table3`; "
     "costs: `headroom cost --paper moa`; in small: `docs/results.md`, `headroom train small/moa_8k16e22d --out "
     "runs/width`"},
    {"Figure 3", "how often each head is chosen, encoder layer 4",
     "moa/wmt14_ende_16k32e256d moa/wmt14_ende_16k32e512d", kAnalyseExperts},
    {"Table 4", "the tokens of each head", "moa/wmt14_ende_16k32e512d", kAnalyseExperts},
    {"Figure 4", "how often each head is chosen, other layers", "moa/wmt14_ende_16k32e512d", kAnalyseExperts},
    {"Appendix B", "parameters against a dense layer's", "", "A proof of Eq. 20's ratio: `headroom cost --paper moa`"},
    {"Table 5", "shapes", "moa/wmt14_*k*e*d moa/wikitext103_mlm_*",
     "`headroom recipes`; `tests/recipes` holds every recipe against it."},
    {"Table 6", "training", "moa/wmt14_* moa/wikitext103_mlm_*",
     "`headroom recipes`; `tests/recipes` holds every recipe against it."},
    {"Table 7", "which losses of the heads' use", "moa/table7_* moa/wmt14_ende_8k8e128d moa/wmt14_ende_8k32e128d",
     "`headroom compare moa/table7_8k8e128d_a01 moa/table7_8k8e128d_z01 moa/wmt14_ende_8k8e128d --out runs/table7`"},
    {"Appendix E", "how multiply-accumulates were counted", "", "`headroom cost --paper moa`"},
};

}  // namespace

std::span<const PaperItem> moa_items() {
  return kMoaItems;
}

}  // namespace headroom::cost::detail
